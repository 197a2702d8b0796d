"""Sessions on a device whose answers are known by a formula."""

import numpy as np
import pytest

from npurt.llm import NoLanguageModelError, OptionError, PromptError, Request, Sampling, Session
from tests.unit.llm.fake import FakeDevice, FakeImage, expected_logits, greedy

PROMPTS = [[5], [5, 6], [1, 2, 3], [1, 2, 3, 4], [9, 8, 7, 6, 5], list(range(7)), list(range(8))]


def session(**sizes: object) -> tuple[Session, FakeDevice]:
    image = FakeImage(**sizes)  # type: ignore[arg-type]
    device = FakeDevice(image)
    return Session(image, device), device


@pytest.mark.parametrize("chunk", [1, 3, 4, 8])
@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_tokens_do_not_depend_on_the_chunk(prompt: list[int], chunk: int) -> None:
    one, _ = session(chunk=chunk)
    assert one.generate(prompt, Request(max_new_tokens=6)).finish().tokens == greedy(prompt, 6)


def test_prefill_runs_in_chunks_and_head_on_the_last_valid_row_only() -> None:
    one, device = session(chunk=4)
    one.generate([1, 2, 3, 4, 5, 6], Request(max_new_tokens=1)).finish()
    assert device.calls == [("prefill", 0, 4), ("prefill", 4, 2), ("head", 0, None)]


def test_the_smallest_capacity_is_used_and_raised_when_it_is_full() -> None:
    one, device = session(capacities=(10, 16))
    result = one.generate(list(range(8)), Request(max_new_tokens=5)).finish()
    entries = [(entry, n_past) for entry, n_past, _ in device.calls if entry.startswith("generate")]
    assert entries == [("generate.10", 8), ("generate.10", 9), ("generate.16", 10), ("generate.16", 11)]
    assert result.stats.capacities == [10, 16]
    assert result.tokens == greedy(range(8), 5)


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_a_full_context_gives_capacity_minus_prompt_plus_one_tokens(count: int) -> None:
    one, _ = session(capacities=(10, 16))
    result = one.generate(list(range(count))).finish()
    assert len(result.tokens) == 16 - count + 1
    assert result.stop_reason == "context_full"
    assert result.tokens == greedy(range(count), 16 - count + 1)


def test_a_prompt_that_fills_the_context_gives_one_token() -> None:
    one, _ = session(capacities=(8,))
    result = one.generate(list(range(8)), Request(max_new_tokens=99)).finish()
    assert (result.tokens, result.stop_reason) == (greedy(range(8), 1), "context_full")


def test_max_tokens_ends_an_answer() -> None:
    one, _ = session()
    result = one.generate([3], Request(max_new_tokens=2)).finish()
    assert (result.tokens, result.stop_reason) == (greedy([3], 2), "max_tokens")


def test_any_end_token_of_the_list_ends_an_answer_and_is_its_last_token() -> None:
    answer = greedy([3], 6)
    one, device = session(eos=(22, answer[2]))
    result = one.generate([3]).finish()
    end = answer.index(answer[2])
    assert (result.tokens, result.stop_reason) == (answer[: end + 1], "eos")
    assert len([call for call in device.calls if call[0].startswith("generate")]) == end, "an end token is not fed"


def test_end_tokens_of_the_request_replace_those_of_the_blob() -> None:
    answer = greedy([3], 6)
    one, _ = session(eos=(answer[1],))
    assert one.generate([3], Request(max_new_tokens=6, eos=())).finish().tokens == answer


def test_a_second_answer_starts_from_an_empty_cache() -> None:
    one, _ = session()
    one.generate([9, 9, 9]).finish()
    assert one.generate([1, 2], Request(max_new_tokens=4)).finish().tokens == greedy([1, 2], 4)


def test_logits_of_every_prompt_position_and_after_each_fed_token() -> None:
    one, _ = session(chunk=4)
    prompt, forced = [5, 6, 7, 8, 9, 10], (11, 12, 13)
    result = one.generate(prompt, Request(max_new_tokens=3, force_ids=forced, collect_logits=True)).finish()
    assert result.prompt_logits is not None and result.step_logits is not None
    assert result.prompt_logits.dtype == result.step_logits.dtype == np.float32
    wanted = [expected_logits(prompt[: count + 1]) for count in range(6)]
    np.testing.assert_array_equal(result.prompt_logits, np.stack(wanted))
    steps = [expected_logits([*prompt, *forced[: count + 1]]) for count in range(3)]
    np.testing.assert_array_equal(result.step_logits, np.stack(steps))
    assert result.tokens == [int(np.argmax(row)) for row in (wanted[-1], *steps[:2])]
    assert result.stop_reason == "max_tokens"


def test_after_the_forced_ids_the_answer_goes_on_with_chosen_ones() -> None:
    one, _ = session()
    first = greedy([5], 1)
    tokens = one.generate([5], Request(max_new_tokens=4, force_ids=(7,))).finish().tokens
    assert tokens == first + greedy([5, 7], 3)


def test_an_end_token_does_not_end_an_answer_while_ids_are_forced() -> None:
    one, _ = session(eos=tuple(greedy([5], 1)))
    result = one.generate([5], Request(max_new_tokens=2, force_ids=(7, 8), collect_logits=True)).finish()
    assert result.step_logits is not None and len(result.step_logits) == 2


def test_forced_ids_end_where_the_context_is_full() -> None:
    one, _ = session(max_prompt_len=4, capacities=(4,))
    result = one.generate([1, 2, 3], Request(force_ids=(7, 8, 9), collect_logits=True)).finish()
    assert result.step_logits is not None
    assert (len(result.tokens), len(result.step_logits), result.stop_reason) == (2, 1, "context_full")


def test_without_a_fed_token_the_step_logits_are_empty() -> None:
    one, _ = session()
    result = one.generate([1], Request(max_new_tokens=1, collect_logits=True)).finish()
    assert result.step_logits is not None and result.step_logits.shape == (0, 23)


def test_pieces_come_one_by_one_before_the_next_token_is_computed() -> None:
    one, device = session()
    pieces = iter(one.generate([1, 2], Request(max_new_tokens=3)))
    first = next(pieces)
    assert first.token == greedy([1, 2], 1)[0]
    assert not any(entry.startswith("generate") for entry, _, _ in device.calls)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "the prompt has 0 tokens: it needs at least 1 and at most 8 (--max-prompt-len)"),
        (
            list(range(9)),
            "the prompt has 9 tokens and the limit is 8: shorten it, or compile with --max-prompt-len 9 or more",
        ),
        ([1, 23], "the prompt has the id 23 at place 1: ids of this model are 0 to 22"),
        ([-1], "the prompt has the id -1 at place 0: ids of this model are 0 to 22"),
    ],
)
def test_a_prompt_is_refused_before_anything_runs(prompt: list[int], message: str) -> None:
    one, device = session(capacities=(64,))
    with pytest.raises(PromptError) as caught:
        one.generate(prompt)
    assert str(caught.value) == message
    assert device.calls == []


def test_a_forced_id_outside_the_vocabulary_is_refused() -> None:
    one, _ = session()
    with pytest.raises(PromptError, match=r"^--force-ids has the id 40 at place 0: ids of this model are 0 to 22$"):
        one.generate([1], Request(force_ids=(40,)))


def test_a_plain_graph_is_refused_by_its_entries() -> None:
    image = FakeImage()
    image.meta = {"llm": None, "entries": [{"name": "main"}]}
    with pytest.raises(NoLanguageModelError) as caught:
        Session(image, FakeDevice(FakeImage()))
    assert str(caught.value) == ("the blob holds no language model (entries: main): use `npuc exec` for a plain graph")


def test_options_out_of_range_are_named() -> None:
    with pytest.raises(OptionError, match=r"^--max-new-tokens is 0: it must be 1 or more$"):
        Request(max_new_tokens=0)
    with pytest.raises(OptionError, match=r"^--stop and --force-ids exclude each other"):
        Request(stop=("a",), force_ids=(1,))


def test_equal_seeds_draw_equal_tokens() -> None:
    one, _ = session(capacities=(64,))
    draws = [
        one.generate([1, 2], Request(30, Sampling(temperature=2.0, seed=seed))).finish().tokens for seed in (3, 3, 4)
    ]
    assert draws[0] == draws[1] != draws[2]
