"""Streams of text: whatever the pieces, the parts that were shown are the whole text."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from npurt.llm.detokenise import TextStream, TokenBytes, Utf8Stream
from npurt.llm.stops import StopStrings

BYTES = st.one_of(st.binary(max_size=24), st.text(max_size=12).map(lambda text: text.encode()))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[low:high] for low, high in pairwise(edges)]


@given(BYTES, st.lists(st.integers(0, 99), max_size=8))
def test_pieces_show_what_the_whole_would(data: bytes, places: list[int]) -> None:
    stream = Utf8Stream()
    shown = [stream.push(piece) for piece in cut(data, places)]
    assert "".join(shown) + stream.finish() == data.decode("utf-8", "replace")


@given(st.text(max_size=12), st.lists(st.integers(0, 99), max_size=8))
def test_sound_text_never_shows_a_replacement_character(text: str, places: list[int]) -> None:
    stream = Utf8Stream()
    shown = "".join(stream.push(piece) for piece in cut(text.encode(), places))
    assert shown == text and stream.finish() == ""


@given(st.lists(st.text("ab", max_size=4), max_size=8), st.lists(st.text("ab", min_size=1, max_size=3), max_size=3))
def test_text_ends_before_the_first_stop_string(texts: list[str], stops: list[str]) -> None:
    filter_, shown, ended = StopStrings(stops), "", False
    fed = ""
    for text in texts:
        part, ended = filter_.push(text)
        shown, fed = shown + part, fed + text
        if ended:
            break
    if not ended:
        shown += filter_.finish()
    places = [fed.find(stop) for stop in stops if stop in fed]
    assert ended == bool(places)
    assert shown == (fed[: min(places)] if places else fed)


@given(BYTES, st.lists(st.integers(0, 99), max_size=8))
def test_a_token_stream_is_its_pieces(data: bytes, places: list[int]) -> None:
    pieces = cut(data, places)
    stream = TextStream(TokenBytes(dict(enumerate(pieces))), ())
    shown = "".join(stream.push(token)[0] for token in range(len(pieces)))
    assert shown + stream.finish() == data.decode("utf-8", "replace")
