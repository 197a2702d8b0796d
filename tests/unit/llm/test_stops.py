"""Stop strings across tokens, and the session that ends by one."""

import json

import pytest

from npurt.llm import OptionError, Request, Session
from npurt.llm.detokenise import TextStream, TokenBytes
from npurt.llm.stops import StopStrings
from tests.unit.llm.fake import VOCAB, FakeDevice, FakeImage, greedy


def stream(texts: list[str], stops: list[str]) -> list[tuple[str, bool]]:
    filter_ = StopStrings(stops)
    return [*(filter_.push(text) for text in texts), (filter_.finish(), False)]


@pytest.mark.parametrize(
    ("texts", "stops", "shown"),
    [
        (["ab", "c"], [], [("ab", False), ("c", False), ("", False)]),
        (["one\n", "\ntwo"], ["\n\n"], [("one", False), ("", True), ("", False)]),
        (["one\n", "two"], ["\n\n"], [("one", False), ("\ntwo", False), ("", False)]),
        (["one\n"], ["\n\n"], [("one", False), ("\n", False)]),
        (["aaa", "ab"], ["aab"], [("a", False), ("a", True), ("", False)]),
        (["say END now"], ["now", "END"], [("say ", True), ("", False)]),
        (["x", "y"], ["xyz"], [("", False), ("", False), ("xy", False)]),
    ],
)
def test_text_that_may_begin_a_stop_string_is_held_back(
    texts: list[str], stops: list[str], shown: list[tuple[str, bool]]
) -> None:
    assert stream(texts, stops) == shown


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^--stop is empty: give at least one character$"):
        StopStrings(["a", ""])


def test_nothing_shows_after_a_stop_string_that_cuts_a_character() -> None:
    text = TextStream(TokenBytes({0: b"stop\xe4"}), ["stop"])
    assert (text.push(0), text.finish()) == (("", True), "")


def letters_image(eos: tuple[int, ...] = ()) -> FakeImage:
    """Token i is the letter of its place, so that the text says the tokens."""
    vocabulary = {chr(ord("a") + token): token for token in range(VOCAB)}
    asset = json.dumps({"model": {"vocab": vocabulary}, "decoder": {"type": "ByteLevel"}}).encode()
    return FakeImage(capacities=(40,), eos=eos, assets={"tokenizer.json": asset})


def spelled(tokens: list[int]) -> str:
    return "".join(chr(ord("a") + token) for token in tokens)


def test_a_stop_string_over_two_tokens_ends_the_answer_and_is_cut() -> None:
    image, answer = letters_image(), greedy([4], 12)
    stop = spelled(answer[5:7])
    end = spelled(answer).index(stop)
    generation = Session(image, FakeDevice(image)).generate([4], Request(stop=(stop,)))
    shown = [piece.text for piece in generation]
    result = generation.finish()
    assert result.stop_reason == "stop_string"
    assert result.tokens == answer[: end + 2]
    assert result.text == "".join(shown) == spelled(answer[:end])


def test_held_back_text_comes_with_the_last_token() -> None:
    image, answer = letters_image(), greedy([4], 3)
    generation = Session(image, FakeDevice(image)).generate([4], Request(3, stop=(spelled(answer[2:]) + "?",)))
    assert [piece.text for piece in generation] == list(spelled(answer))


def test_an_end_token_has_no_text() -> None:
    answer = greedy([4], 4)
    image = letters_image(eos=(answer[3],))
    result = Session(image, FakeDevice(image)).generate([4]).finish()
    end = answer.index(answer[3])
    assert (result.text, result.stop_reason) == (spelled(answer[:end]), "eos")
