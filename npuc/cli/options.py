"""Options that several commands share, and how their texts become values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from npuc.driver import CompileOptions

F = TypeVar("F", bound=Callable[..., Any])
LARGEST = 2**31 - 1
ELF_MAGIC = b"\x7fELF"


def is_blob(path: Path) -> bool:
    """Whether the file begins as a blob does. Errors: OSError where it cannot be read."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(ELF_MAGIC)) == ELF_MAGIC


def _assignments(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Texts ``NAME=NUMBER`` as pairs; the number is 0 or more."""
    pairs = []
    for value in values:
        name, _equals, number = value.rpartition("=")
        if not (name and number.isascii() and number.isdigit()):
            raise click.BadParameter(f"{value!r} is not of the form {parameter.metavar}")
        if int(number) > LARGEST:
            raise click.BadParameter(f"{value!r}: at most {LARGEST} is possible")
        pairs.append((name, int(number)))
    return tuple(pairs)


def _numbers(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """A text ``A,B`` as numbers above 0, at least one."""
    if value is None:
        return None
    words = [word.strip() for word in value.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise click.BadParameter(f"{value!r} is not a list of numbers above 0, such as 256,1152")
    return tuple(int(word) for word in words)


def _words(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    """A text ``A,B`` as words."""
    return tuple(word.strip() for word in (value or "").split(",") if word.strip())


def _values(_: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Texts ``NAME=A,B`` as pairs of a name and numbers."""
    pairs = []
    for text in texts:
        name, _equals, numbers = text.rpartition("=")
        try:
            [float(number) for number in numbers.split(",") if numbers]
        except ValueError:
            raise click.BadParameter(f"{text!r} is not of the form {parameter.metavar}") from None
        if not name:
            raise click.BadParameter(f"{text!r} is not of the form {parameter.metavar}")
        pairs.append((name, numbers))
    return tuple(pairs)


def _arrays(pairs: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Numbers as arrays: whole ones as int64, others as float64."""
    import numpy as np

    def array(text: str) -> Any:
        numbers = text.split(",") if text else []
        whole = all(number.strip().lstrip("+-").isdigit() for number in numbers)
        return np.array([int(n) if whole else float(n) for n in numbers], np.int64 if whole else np.float64)

    return {name: array(text) for name, text in pairs}


POSITIVE = click.IntRange(min=1)

dim_option = click.option(
    "--dim", "dims", callback=_assignments, multiple=True, metavar="NAME=VALUE",
    help="Value of a dimension that the model leaves open. May be repeated.",
)  # fmt: skip

COMPILE_OPTIONS = (
    click.option("--target", default="npu40xx", show_default=True, metavar="T", help="Machine: a name or a .toml."),
    click.option(
        "--precision", type=click.Choice(["f16", "f32"]), default="f16", show_default=True,
        help="Stored type of weights and activations; sums are always f32.",
    ),
    click.option(
        "--requantise", type=click.Choice(["per-channel"]),
        help="Quantise weights that have scales for groups again, with one for each channel. That is faster where many "
        "rows are computed, and changes the answers.",
    ),
    click.option(
        "--max-prompt-len", type=POSITIVE, metavar="N", help="Longest prompt in tokens.  [default: 1024]"
    ),
    click.option(
        "--chunk", type=POSITIVE, metavar="C", help="Prompt tokens that one run reads.  [default: 128]"
    ),
    click.option(
        "--min-response-len", type=POSITIVE, metavar="R",
        help="Tokens that fit after the longest prompt.  [default: 128]",
    ),
    click.option(
        "--capacities", callback=_numbers, metavar="A,B",
        help="Sizes of the cache in tokens; an answer begins in the smallest that holds it, which is fastest.  "
        "[default: a small one, and prompt + response]",
    ),
    click.option(
        "--attention", type=click.Choice(["decomposed", "flash", "incremental"]),
        help="Form of every attention that can have it: all scores at once, a running softmax, or one query over many "
        "keys.  [default: the fastest of each]",
    ),
    dim_option,
    click.option(
        "--value", "values", callback=_values, multiple=True, metavar="NAME=A,B",
        help="Numbers of an input that decides shapes or axes; it becomes a constant. May be repeated.",
    ),
    click.option(
        "--state-rows", callback=_assignments, multiple=True, metavar="ID=N",
        help="Most rows of a growing variable in a graph that is no language model. May be repeated.",
    ),
    click.option(
        "--kernel", "kernels", multiple=True, metavar="WHAT=KERNEL",
        help="Compute WHAT, a kernel of the library or an operator, with a kernel of yours: FILE.py:NAME, or a name "
        "that a package offers. May be repeated.",
    ),
    click.option(
        "--host-ops", callback=_words, metavar="A,B",
        help="Run nodes of these operators on the host where the device has no kernel for them, or `all`; `npuc ops` "
        "lists them. Only in a plain graph.",
    ),
    click.option(
        "--choices", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
        help="Tile sizes that `npuc kernel tune --save` found.",
    ),
    click.option(
        "--no-cache", is_flag=True, envvar="NPUC_NO_CACHE",
        help="Search for the fastest forms again, and keep nothing of it. The blob is the same.  [env: NPUC_NO_CACHE]",
    ),
)  # fmt: skip

COMPILE_NAMES = (
    "target", "precision", "requantise", "max_prompt_len", "chunk", "min_response_len", "capacities", "attention",
    "dims", "values",
    "state_rows", "kernels", "host_ops", "choices", "no_cache",
)  # fmt: skip


COMPILE_SECTION = {"Compiling, where a MODEL is given": COMPILE_NAMES}
"""For the help of commands that compile on the way."""


def compile_options(function: F) -> F:
    """Adds the options of compilation to a command; `options_of` makes them one value."""
    for option in reversed(COMPILE_OPTIONS):
        function = option(function)
    return function


def compile_option_given(ctx: click.Context) -> bool:
    """Whether the user gave any of the compile options."""
    commandline = click.core.ParameterSource.COMMANDLINE
    return any(ctx.get_parameter_source(name) is commandline for name in COMPILE_NAMES)


def options_of(given: dict[str, Any], **more: Any) -> CompileOptions:
    """The compiler's options from a command's. An option that was not given stays None, so that its default may shrink
    to what the model allows while a given one is an error."""
    from npuc.answers import AnswerCache, cache_folder
    from npuc.driver import CompileOptions

    return CompileOptions(
        target=given["target"],
        precision=given["precision"],
        requantise=given["requantise"],
        max_prompt_len=given["max_prompt_len"],
        min_response_len=given["min_response_len"],
        chunk=given["chunk"],
        capacities=given["capacities"],
        attention=given["attention"],
        dims=dict(given["dims"]),
        state_rows=dict(given["state_rows"]),
        kernels=given["kernels"],
        host_ops=given["host_ops"],
        choices=given["choices"],
        answers=None if given["no_cache"] else AnswerCache(cache_folder("choices")),
        **{"values": _arrays(given["values"]), **more},
    )


def numbers_option(name: str, *, default: str, help: str) -> Callable[[F], F]:
    """An option that takes a list of numbers above 0, such as 512,1024."""
    return click.option(name, default=default, show_default=True, callback=_numbers, metavar="A,B", help=help)


def output_option(*names: str, metavar: str, help: str, required: bool = False) -> Callable[[F], F]:
    """An option for a file to write. A folder that is not there is refused at once, before any work is done for it."""

    def check(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
        if value is not None and not value.absolute().parent.is_dir():
            raise click.BadParameter(f"there is no folder {value.parent}")
        return value

    path = click.Path(dir_okay=False, path_type=Path)
    return click.option(*names, type=path, callback=check, metavar=metavar, help=help, required=required)


def keep_inputs(output: Path | None, *inputs: Path | None) -> None:
    """Refuses (click.UsageError) an output that would take the place of what is read: a file itself, or a file of an
    exported folder; blobs in that folder may be written again."""
    if output is None or not output.is_file():
        return
    for path in inputs:
        if path is None or not path.exists():
            continue
        inside = path.is_dir() and output.resolve().parent == path.resolve() and not is_blob(output)
        if inside or output.samefile(path):
            raise click.UsageError(f"{output} is an input of this command: write to another file")


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else, on stdout."
)


def _mode_option(default: str) -> Callable[[F], F]:
    return click.option(
        "--mode", type=click.Choice(["exact", "fast"]), default=default, show_default=True,
        help="exact: the device's own bits, the same on every host; fast: float32, within a tolerance.",
    )  # fmt: skip


mode_option, fast_mode_option = _mode_option("exact"), _mode_option("fast")


def note(text: str) -> None:
    """One line for people, on stderr."""
    click.echo(text, err=True)


def settle_mode(mode: str) -> None:
    """What a mode asks of this process: BLAS threads cost exact mode time, and are what fast mode is fast by."""
    if mode == "exact":
        from npurt import blas

        blas.one_thread()
