"""How many tokens a second this host computes with a blob.

The numbers are those of the simulator on this host. They say nothing about an NPU: `npuc profile` estimates that.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import npurt
from npuc.host import cores, peak_rss_bytes
from npuc.progress import Report, silent
from npurt import blas
from npurt.llm import ModelInfo, OptionError, PromptError, Request, Session
from npurt.llm.protocol import RunsEntries

MEANING = "speed of the simulator on this host, not of the NPU"
SEED = 0


@dataclass(frozen=True)
class Rates:
    """Tokens a second: the median of the repeats, the slowest and the fastest."""

    median: float
    slowest: float
    fastest: float

    @staticmethod
    def of(tokens: int, seconds: Sequence[float]) -> Rates:
        rates = [tokens / each for each in seconds]
        return Rates(statistics.median(rates), min(rates), max(rates))

    def __str__(self) -> str:
        return f"{self.median:.2f} tokens/s ({self.slowest:.2f} to {self.fastest:.2f})"


@dataclass(frozen=True)
class Bench:
    """One measurement.

    load_s: until the blob is checked and its device stands. prepare_s: until each entry that is used has run once; in
    fast mode it is linked by that, and its constants are decoded. decode: of the tokens that are fed after the prompt.
    peak_rss_mb: most memory of this process (10^6 bytes), None where the system does not say. constants_mb: of fast
    mode, narrow constants held as float32, and the most that may be (a quarter of the machine's memory); beyond it they
    are decoded on use.
    """

    mode: str
    prompt_tokens: int
    gen_tokens: int
    repeat: int
    load_s: float
    prepare_s: float
    prefill: Rates
    decode: Rates
    peak_rss_mb: float | None
    blas: blas.Blas | None
    constants_mb: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """The object of ``npuc bench --json``."""
        found: dict[str, Any] = {
            "meaning": MEANING, "mode": self.mode, "prompt_tokens": self.prompt_tokens, "gen_tokens": self.gen_tokens,
            "repeat": self.repeat, "load_s": self.load_s, "prepare_s": self.prepare_s, "peak_rss_mb": self.peak_rss_mb,
            "blas_kernel": self.blas and self.blas.kernel, "threads": self.blas and self.blas.threads, "cores": cores(),
        }  # fmt: skip
        found["constants_mb"], found["constants_budget_mb"] = self.constants_mb or (None, None)
        for name, rates in (("prefill", self.prefill), ("decode", self.decode)):
            found[f"{name}_tokens_per_s"] = rates.median
            found[f"{name}_tokens_per_s_min"], found[f"{name}_tokens_per_s_max"] = rates.slowest, rates.fastest
        return found

    def lines(self) -> list[str]:
        """The same for people."""
        known = "unknown" if self.blas is None else f"OpenBLAS {self.blas.kernel}, threads: {self.blas.threads}"
        memory = "unknown" if self.peak_rss_mb is None else f"{self.peak_rss_mb:.0f} MB"
        constants = (
            "" if self.constants_mb is None else "; decoded constants {:.0f} of {:.0f} MB".format(*self.constants_mb)
        )
        return [
            MEANING,
            f"prefill  {self.prefill}, prompts of {self.prompt_tokens}",
            f"decode   {self.decode}, {self.gen_tokens} tokens after each prompt",
            f"load     {self.load_s:.2f} s, then {self.prepare_s:.2f} s to run each entry once",
            f"memory   {memory} at most{constants}",
            f"host     BLAS {known} of {cores()} cores; {self.mode} mode, {self.repeat} repeats",
        ]


def bench(
    blob: Path,
    mode: str,
    prompt_tokens: int,
    gen_tokens: int,
    repeat: int,
    warn: Callable[[str], None],
    report: Report = silent,
) -> Bench:
    """Measures. Each repeat has a prompt of its own, of equally likely ids (seeded), and no end token ends an answer.

    prompt_tokens, gen_tokens, repeat: 1 or more. warn: told of entries that fast mode cannot run. Errors: PromptError
    and OptionError where the blob has no place for them, NoLanguageModelError for a plain graph, BlobError.
    """
    report("loading", None)
    clock = time.perf_counter()
    image = npurt.load(blob)
    device = npurt.open_device(image, mode, warn=warn)
    load_s = time.perf_counter() - clock
    session = Session(image, device)
    _check(session.info, prompt_tokens, gen_tokens)
    report("running each entry once", None)
    clock = time.perf_counter()
    _prepare(session.info, device, prompt_tokens, gen_tokens)
    prepare_s = time.perf_counter() - clock
    # The last chosen token is not fed, so one more is chosen than measured
    request = Request(gen_tokens + 1, eos=())
    numbers = np.random.default_rng(SEED)
    prefill, decode = [], []
    for number in range(repeat):
        report(f"repeat {number + 1} of {repeat}", number / repeat)
        prompt = numbers.integers(0, session.info.vocab, prompt_tokens).tolist()
        stats = session.generate(prompt, request).finish().stats
        prefill.append(stats.prefill_seconds)
        decode.append(stats.generate_seconds)
    peak = peak_rss_bytes()
    constants = None
    if isinstance(device, npurt.FastDevice):
        constants = device.decoded_bytes / 1e6, device.budget_bytes / 1e6
    return Bench(
        mode, prompt_tokens, gen_tokens, repeat, load_s, prepare_s, Rates.of(prompt_tokens, prefill),
        Rates.of(gen_tokens, decode), None if peak is None else peak / 1e6, blas.loaded(), constants,
    )  # fmt: skip


def _check(info: ModelInfo, prompt_tokens: int, gen_tokens: int) -> None:
    limit = min(info.max_prompt_len, info.context - 1)
    if prompt_tokens > limit:
        raise PromptError(f"--prompt-tokens is {prompt_tokens}: this blob takes at most {limit}")
    if prompt_tokens + gen_tokens > info.context:
        raise OptionError(
            f"--gen-tokens is {gen_tokens}: after a prompt of {prompt_tokens} this blob has places for "
            f"{info.context - prompt_tokens} (its largest capacity is {info.context})"
        )


def _prepare(info: ModelInfo, device: RunsEntries, prompt_tokens: int, gen_tokens: int) -> None:
    """Runs each entry once that the measurement will run."""
    chunk = np.zeros((1, info.chunk), info.ids_dtype)
    hidden = device.run("prefill", {"input_ids": chunk}, n_past=0, n_new=info.chunk if info.whole_runs else 1)["hidden"]
    device.run("head", {"hidden": hidden[:, : info.step_rows]})
    token = np.zeros((1, info.step_rows), info.ids_dtype)
    steps = range(prompt_tokens, prompt_tokens + gen_tokens)
    for entry in dict.fromkeys(info.generate_entry(n_past)[0] for n_past in steps):
        device.run(entry, {"input_ids": token}, n_past=1, n_new=1)
