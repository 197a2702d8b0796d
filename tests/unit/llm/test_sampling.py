"""Sampling against the definitions of its options."""

from collections.abc import Sequence

import numpy as np
import pytest

from npurt.llm import OptionError, Sampling
from npurt.llm.sampling import Sampler, distribution, penalised

LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.25, 0.05]))


def kept(options: Sampling) -> tuple[list[int], list[float]]:
    ids, probabilities = distribution(LOGITS, options)
    return ids.tolist(), [round(float(value), 6) for value in probabilities]


def test_greedy_takes_the_largest_and_the_lowest_id_of_equals() -> None:
    sampler = Sampler(Sampling())
    assert sampler.choose(np.array([0, 3, 1, 3], np.float32), []) == 1


@pytest.mark.parametrize(
    ("options", "ids", "probabilities"),
    [
        (Sampling(1.0), [1, 3, 2, 0, 4], [0.4, 0.25, 0.2, 0.1, 0.05]),
        (Sampling(1.0, top_k=2), [1, 3], [0.615385, 0.384615]),
        (Sampling(1.0, top_k=99), [1, 3, 2, 0, 4], [0.4, 0.25, 0.2, 0.1, 0.05]),
        (Sampling(1.0, top_p=0.6), [1, 3], [0.615385, 0.384615]),
        (Sampling(1.0, top_p=0.01), [1], [1.0]),
        (Sampling(1.0, min_p=0.5), [1, 3, 2], [0.470588, 0.294118, 0.235294]),
        (Sampling(0.5, top_k=2), [1, 3], [0.719101, 0.280899]),
    ],
)
def test_cuts_keep_what_they_say(options: Sampling, ids: list[int], probabilities: list[float]) -> None:
    assert kept(options) == (ids, probabilities)


def test_equal_logits_stand_in_id_order() -> None:
    ids, _ = distribution(np.zeros(4), Sampling(1.0, top_k=3))
    assert ids.tolist() == [0, 1, 2]


def test_draws_follow_the_probabilities() -> None:
    sampler = Sampler(Sampling(1.0, seed=1))
    logits = LOGITS.astype(np.float32)
    counts = np.bincount([sampler.choose(logits, []) for _ in range(4000)], minlength=5) / 4000
    np.testing.assert_allclose(counts, [0.1, 0.4, 0.2, 0.25, 0.05], atol=0.03)  # four standard deviations


def test_a_low_temperature_draws_the_likeliest() -> None:
    sampler = Sampler(Sampling(1e-6))
    assert sampler.choose(LOGITS.astype(np.float32), []) == 1


@pytest.mark.parametrize("history", [[0, 1], [1, 0, 0]])
def test_the_penalty_divides_positive_and_multiplies_negative_logits_once(history: Sequence[int]) -> None:
    scores = np.array([2.0, -2.0, 2.0])
    assert penalised(scores, history, 2.0).tolist() == [1.0, -4.0, 2.0]
    assert scores.tolist() == [2.0, -2.0, 2.0], "the caller's array stays"


def test_the_penalty_also_changes_a_greedy_choice() -> None:
    sampler = Sampler(Sampling(repetition_penalty=4.0))
    assert sampler.choose(np.array([3.0, 2.0], np.float32), [0]) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": -1.0}, "--temperature is -1.0: it must be a number of 0 or more"),
        ({"temperature": float("nan")}, "--temperature is nan: it must be a number of 0 or more"),
        ({"temperature": float("inf")}, "--temperature is inf: it must be a number of 0 or more"),
        ({"top_k": -1}, "--top-k is -1: it must be 0 (keep all) or more"),
        ({"top_p": 0.0}, "--top-p is 0.0: it must be above 0 and at most 1"),
        ({"min_p": 1.5}, "--min-p is 1.5: it must be from 0 to 1"),
        ({"repetition_penalty": 0.0}, "--repetition-penalty is 0.0: it must be above 0"),
        ({"seed": -1}, "--seed is -1: it must be 0 or more"),
    ],
)
def test_options_out_of_range_are_named(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        Sampling(**wrong)  # type: ignore[arg-type]
    assert str(caught.value) == message
