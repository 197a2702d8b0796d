"""A yardstick for one benchmark: SmolLM2-135M decode as a vendor's own compiler schedules it.

Not measured on hardware: the vendor's task graph for 4 tiles and both DMA ports, 511 rows of past, simulated with the
constants of npu40xx; and what the vendor's compiler itself forecasts, at 1700 MHz. f16 with f16 cache (7,667 DMAs);
int4 with one scale per channel, head in f16 (7,005 DMAs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# microseconds of one token, in both readings of the DMA latency
DECODE_US: Mapping[str, Mapping[str, float]] = {
    "f16": {"held": 3892.0, "overlapped": 2871.0},
    "int4": {"held": 2302.0, "overlapped": 1664.0},
}
FORECAST_US: Mapping[str, float] = {"f16": 9460.0, "int4": 8340.0}
"""Of the vendor's compiler, from its own cost model."""
BENCHMARK_TARGET = "npu40xx"
_SMOLLM2_135M = {"vocab": 49152, "hidden": 576}
_STATES = 60  # keys and values of 30 layers


def is_benchmark(meta: Mapping[str, Any]) -> bool:
    """Whether a blob's metadata have the shape of SmolLM2-135M: its vocabulary, width and caches."""
    llm = meta["llm"]
    same = llm is not None and all(llm.get(key) == value for key, value in _SMOLLM2_135M.items())
    return same and len(meta["states"]) == _STATES


def token_ratios(makespans_us: Mapping[str, float], reading: str) -> list[dict[str, Any]]:
    """Of each generate entry: a token's time (the entry and the head), and its ratio to the vendor's figures.

    makespans_us: by entry. reading: of the DMA latency, "held" or "overlapped".
    """
    head = makespans_us.get("head")
    rows = []
    for name, time in makespans_us.items():
        if head is None or not name.startswith("generate."):
            continue
        token = time + head
        rows.append(
            {
                "entry": name,
                "token_us": token,
                "ratio_to_vendor": {kind: token / figures[reading] for kind, figures in DECODE_US.items()},
                "ratio_to_forecast": {kind: token / figure for kind, figure in FORECAST_US.items()},
            }
        )
    return rows


def vendor_text(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "against a vendor's schedule of this model (by its shape) for 4 tiles and 511 rows of past: assumed, as "
        "simulated with these constants and not measured; and the vendor's own forecast"
    ]
    for row in rows:
        schedules, forecasts = (
            ", ".join(f"{ratio:.2f} x its {kind}" for kind, ratio in row[key].items())
            for key in ("ratio_to_vendor", "ratio_to_forecast")
        )
        time = f"token with {row['entry']}: {row['token_us']:.0f} us"
        lines.append(f"{time}, {schedules} schedule, {forecasts} forecast")
    return lines
