"""Pairs by name: the spellings in which exporters write "the value before" and "the value after"."""

from __future__ import annotations

import re

# (input, output) patterns; a pair matches when its groups are equal. The first that matches an input and an output
# counts.
_SPELLINGS = (
    (r"state\.(.+)", r"next\.(.+)"),  # npuc's own pure form
    (r"past_key_values\.(.+)", r"present_key_values\.(.+)"),
    (r"past_key_values\.(.+)", r"present\.(.+)"),  # optimum, onnxruntime-genai, flat torch wrappers
    (r"past_key_values\.(.+)", r"cache\.(.+)"),  # transformers' exporter
    (r"cache_params\.(.+)", r"cache\.(.+)"),  # transformers' exporter, recurrent models
    (r"past([._].+)", r"present([._].+)"),  # convolution states; older decoders: past_0, past_key_self_0
    (r"past_(.+)", r"new_(.+)"),
    (r"(.+)_in", r"(.+)_out"),
    (r"(.+)\.in", r"(.+)\.out"),
)
_COMPILED = tuple((re.compile(before), re.compile(after)) for before, after in _SPELLINGS)


def pair_names(inputs: list[str], outputs: list[str]) -> list[tuple[str, str]]:
    """(input, output) names that belong together, in the order of the inputs; each name in one pair at most."""
    pairs: dict[str, str] = {}
    taken: set[str] = set()
    for before, after in _COMPILED:
        ends = {m[1]: name for name in outputs if name not in taken and (m := after.fullmatch(name))}
        for name in inputs:
            match = before.fullmatch(name) if name not in pairs else None
            if match and match[1] in ends and ends[match[1]] not in taken:
                pairs[name] = ends[match[1]]
                taken.add(ends[match[1]])
    return [(name, pairs[name]) for name in inputs if name in pairs]
