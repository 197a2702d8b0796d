"""Training: Muon for the matrices of the layers, AdamW for the embedding and the norms; a fixed number of steps.

A row starts with `<s>` at a random verse, runs on in the order of the text, and is cut into passages of a few verses
(`</s>` `<s>`), so the model learns to start anywhere and to come to an end. Most steps use short rows; the last ones
use rows of the full length, so that every position the model promises has been seen.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .net import Net
from .shape import BOS, EOS


@dataclass(frozen=True)
class Plan:
    """How long and how fast to train."""

    steps: int = 2000
    schedule: int = 2300
    """Steps of the rate's schedule; training ends a little before it, at 0.15 of the top rate."""
    long_steps: int = 200
    """The last steps, whose rows have the full length."""
    tokens: int = 6144
    """Tokens of one step, whatever the length of its rows."""
    short: int = 256
    rate: float = 6e-3
    warmup: int = 100
    decay: float = 0.1
    verses: tuple[int, int] = (4, 8)
    """Fewest and most verses of a passage."""
    seed: int = 1
    threads: int = 2

    def rate_at(self, step: int) -> float:
        """Linear warm-up, then linear down, to a fiftieth at the schedule's end."""
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        left = (self.schedule - step) / (self.schedule - self.warmup)
        return self.rate * (0.02 + 0.98 * left)


class Rows:
    """Draws training rows from encoded chapters (chapters -> verses -> token ids)."""

    def __init__(self, chapters: list[list[list[int]]], verses: tuple[int, int], seed: int) -> None:
        self.verses = verses
        self.random = random.Random(seed)
        self.flat = [v for chapter in chapters for v in chapter]
        self.last = [i == len(chapter) - 1 for chapter in chapters for i in range(len(chapter))]
        self.order: list[int] = []

    def row(self, length: int) -> list[int]:
        """`length` tokens. Starts are a shuffled walk, so an epoch starts once at every verse."""
        if not self.order:
            self.order = list(range(len(self.flat)))
            self.random.shuffle(self.order)
        at, out = self.order.pop(), [BOS]
        left = self.random.randint(*self.verses)
        while len(out) < length:
            out += self.flat[at]
            left -= 1
            if left == 0 or self.last[at]:
                out += [EOS, BOS]
                left = self.random.randint(*self.verses)
            at = (at + 1) % len(self.flat)
        return out[:length]

    def batch(self, rows: int, length: int) -> Tensor:
        """[rows, length + 1]: inputs and, shifted by one, targets."""
        return torch.tensor([self.row(length + 1) for _ in range(rows)])


def loss_of(net: Net, batch: Tensor) -> Tensor:
    """Mean cross-entropy in nats per token. `<s>` in mid-row is not asked for: nobody predicts it."""
    targets = batch[:, 1:].reshape(-1)
    return F.cross_entropy(net(batch[:, :-1]).flatten(0, 1), targets, ignore_index=BOS)


def optimizers(net: Net, plan: Plan) -> list[torch.optim.Optimizer]:
    """One optimizer for the matrices, one for the rest."""
    named = list(net.named_parameters())
    matrices = [p for n, p in named if p.ndim == 2 and "embed" not in n]
    others = [
        {"params": [p for n, p in named if "embed" in n], "weight_decay": 0.01},
        {"params": [p for n, p in named if p.ndim == 1], "weight_decay": 0.0},
    ]
    return [
        torch.optim.Muon(
            matrices, lr=plan.rate, weight_decay=plan.decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=plan.rate, betas=(0.9, 0.98)),
    ]


def train(
    net: Net, chapters: list[list[list[int]]], plan: Plan, each: Callable[[int, float, float], None] | None = None
) -> float:
    """Trains in place; gives back the seconds. `each(step, loss, seconds)` is called every 50 steps."""
    torch.set_num_threads(plan.threads)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # costs a tenth
    rows, steppers, start, mean = Rows(chapters, plan.verses, plan.seed), optimizers(net, plan), time.monotonic(), 0.0
    for step in range(plan.steps):
        length = net.shape.positions if step >= plan.steps - plan.long_steps else plan.short
        loss = loss_of(net, rows.batch(plan.tokens // length, length))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for stepper in steppers:
            for group in stepper.param_groups:
                group["lr"] = plan.rate_at(step)
            stepper.step()
            stepper.zero_grad(set_to_none=True)
        mean += (loss.item() - mean) / min(step + 1, 50)
        if each and (step + 1) % 50 == 0:
            each(step + 1, mean, time.monotonic() - start)
    return time.monotonic() - start
