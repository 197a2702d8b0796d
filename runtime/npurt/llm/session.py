"""A session: token ids in, token ids and text out, with the entries of one blob on one device.

The prompt goes through `prefill` in chunks, `head` turns the last valid row into logits, and each chosen token goes
through `generate`. All entries share one cache, so a larger capacity in mid-answer is only the name of another entry.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .detokenise import TextStream
from .errors import OptionError
from .generation import Piece, Request, Result, Stats, StopReason
from .model_info import HEAD, PREFILL, ModelInfo
from .protocol import HoldsModel, RunsEntries
from .sampling import Sampler
from .tokenizer import ASSET, token_bytes

Logits = NDArray[np.float32]
DEFAULTS = Request()


class Session:
    """One model on one device; answers one prompt at a time, each from an empty cache. Batch is 1.

    Errors: NoLanguageModelError where the image holds a plain graph; TokenizerError where its tokenizer is damaged.
    """

    def __init__(self, image: HoldsModel, device: RunsEntries) -> None:
        self.info = ModelInfo.from_meta(image.meta)
        self._device = device
        self._pieces = token_bytes(image.assets)

    def generate(self, prompt: Sequence[int], request: Request = DEFAULTS) -> Generation:
        """Starts an answer; iterate over it for the pieces, or call `finish`.

        Errors: PromptError and OptionError, before anything runs.
        """
        self.info.check_prompt(prompt)
        self.info.check_ids(request.force_ids, "--force-ids")
        eos = self.info.eos if request.eos is None else request.eos
        if request.stop and self._pieces is None:
            raise OptionError(f"--stop needs the text of the answer, and the blob carries no {ASSET}")
        text = None if self._pieces is None else TextStream(self._pieces, request.stop, silent=eos)
        return Generation(self.info, self._device, text, list(prompt), request, eos)


class Generation:
    """One answer while it is made. Iterating yields a `Piece` for each chosen token; `finish` gives the `Result`."""

    def __init__(
        self,
        info: ModelInfo,
        device: RunsEntries,
        text: TextStream | None,
        prompt: list[int],
        request: Request,
        eos: tuple[int, ...],
    ) -> None:
        self._info, self._device, self._text = info, device, text
        self._prompt, self._request, self._eos = prompt, request, eos
        self._sampler = Sampler(request.sampling)
        self._n_past = 0
        self._tokens: list[int] = []
        self._fed: list[int] = []
        self._shown: list[str] = []
        self._prompt_logits: list[Logits] = []
        self._step_logits: list[Logits] = []
        self._stats = Stats(prompt_tokens=len(prompt))
        self._reason: StopReason | None = None
        self._steps = self._run()

    @property
    def has_text(self) -> bool:
        """Whether pieces carry text: the blob has a tokenizer."""
        return self._text is not None

    def __iter__(self) -> Iterator[Piece]:
        return self._steps

    def finish(self) -> Result:
        """Runs what is left and returns the whole answer."""
        for _ in self._steps:
            pass
        assert self._reason is not None, "an answer that ended by an error has no result"
        keep = self._request.collect_logits
        return Result(
            tokens=self._tokens,
            text=None if self._text is None else "".join(self._shown),
            stop_reason=self._reason,
            stats=self._stats,
            prompt_logits=self._stacked(self._prompt_logits) if keep else None,
            step_logits=self._stacked(self._step_logits) if keep else None,
        )

    def _stacked(self, rows: list[Logits]) -> Logits:
        return np.stack(rows) if rows else np.empty((0, self._info.vocab), np.float32)

    def _run(self) -> Iterator[Piece]:
        """Choose a token, decide whether it is the last, show it, feed it."""
        logits = self._prefill()
        while self._reason is None:
            token = self._sampler.choose(logits, [*self._prompt, *self._fed])
            self._tokens.append(token)
            forced = self._request.force_ids[len(self._fed) :][:1]
            text, stopped = self._text.push(token) if self._text else ("", False)
            reason = self._ending(token, stopped, bool(forced))
            if reason is not None and self._text:
                text += self._text.finish()
            self._shown.append(text)
            yield Piece(token, text)
            # A forced id is fed after the last wanted token too: who forces ids wants the logits after each of them.
            if reason is None or (forced and self._n_past < self._info.context):
                logits = self._feed(forced[0] if forced else token)
            self._reason = reason

    def _ending(self, token: int, stopped: bool, forced: bool) -> StopReason | None:
        """Why this token is the last one, or None."""
        if not forced and token in self._eos:
            return StopReason.EOS
        if stopped:
            return StopReason.STOP_STRING
        if len(self._tokens) == self._request.max_new_tokens:
            return StopReason.MAX_TOKENS
        return StopReason.CONTEXT_FULL if self._n_past == self._info.context else None

    def _prefill(self) -> Logits:
        """The whole prompt in chunks; the logits [vocab] after its last token."""
        started = time.perf_counter()
        self._device.reset()
        logits: Logits | None = None
        while self._n_past < len(self._prompt):
            hidden, fed = self._run_chunk(self._prompt[self._n_past :])
            self._stats.prefill_runs += 1
            if self._request.collect_logits:
                self._prompt_logits += [self._head(hidden, row) for row in range(fed)]
                logits = self._prompt_logits[-1]
            elif self._n_past == len(self._prompt):
                logits = self._head(hidden, fed - 1)
        assert logits is not None, "a prompt has at least one token"
        self._stats.prefill_seconds = time.perf_counter() - started
        return logits

    def _run_chunk(self, rest: list[int]) -> tuple[NDArray[np.generic], int]:
        """`hidden` of the next run for the rest of a prompt, and the number of tokens that it took.

        Rows past the last id are never attended. Where a state would take them in, the last tokens go one by one.
        """
        if self._info.whole_runs and len(rest) < self._info.chunk:
            return self._run_one(rest[0]), 1
        ids = rest[: self._info.chunk]
        padded = np.zeros((1, self._info.chunk), self._info.ids_dtype)
        padded[0, : len(ids)] = ids
        return self._run_entry(PREFILL, padded, len(ids)), len(ids)

    def _run_one(self, token: int) -> NDArray[np.generic]:
        """`hidden` of one token, with the smallest capacity that holds it."""
        entry, capacity = self._info.generate_entry(self._n_past)
        if capacity not in self._stats.capacities:
            self._stats.capacities.append(capacity)
        ids = np.zeros((1, self._info.step_rows), self._info.ids_dtype)
        ids[0, 0] = token
        return self._run_entry(entry, ids, 1)

    def _feed(self, token: int) -> Logits:
        """One token into the cache; the logits [vocab] after it."""
        started = time.perf_counter()
        logits = self._head(self._run_one(token), 0)
        self._fed.append(token)
        self._stats.fed_tokens += 1
        if self._request.collect_logits:
            self._step_logits.append(logits)
        self._stats.generate_seconds += time.perf_counter() - started
        return logits

    def _run_entry(self, entry: str, ids: NDArray[np.generic], n_new: int) -> NDArray[np.generic]:
        """`hidden` [1, rows, width] of prefill or generate; the cache then holds n_new rows more."""
        outputs = self._device.run(entry, {"input_ids": ids}, n_past=self._n_past, n_new=n_new)
        self._n_past += n_new
        return outputs["hidden"]

    def _head(self, hidden: NDArray[np.generic], row: int) -> Logits:
        """Logits [vocab] of one row of `hidden`."""
        self._stats.head_runs += 1
        rows = np.zeros((1, self._info.step_rows, hidden.shape[-1]), hidden.dtype)
        rows[:, 0] = hidden[:, row]
        outputs = self._device.run(HEAD, {"hidden": rows})
        logits: Logits = outputs["logits"].reshape(self._info.step_rows, -1)[0].astype(np.float32)
        return logits
