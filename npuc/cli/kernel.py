"""`npuc kernel`."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from npuc.cli.options import POSITIVE, compile_options, json_option, note, options_of, output_option
from npuc.cli.progress import progress

if TYPE_CHECKING:
    from npuc.authoring.source import FoundKernel
    from npuc.tile import Example


def _settings(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """Texts ``NAME=VALUE`` as parameters; the value is a Python literal, else a text."""
    found: dict[str, Any] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not (name.isidentifier() and equals):
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE, such as bm=64 or tile=(8,64)")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


set_option = click.option(
    "--set", "settings", multiple=True, callback=_settings, metavar="NAME=VALUE",
    help="A static parameter instead of the example's. May be repeated.",
)  # fmt: skip
number_option = click.option(
    "--example", "number", type=POSITIVE, default=1, show_default=True, metavar="N", help="Which of the examples."
)
target_option = click.option(
    "--target", default="npu40xx", show_default=True, metavar="T", help="Machine: a name or a .toml."
)
kernel_argument = click.argument("kernel", metavar="KERNEL")


@click.group("kernel")
def command() -> None:
    """Try, show, price and tune kernels of the tile language.

    KERNEL is FILE.py:NAME (or FILE.py where it holds one kernel), a name of the library, or a name that an installed
    package offers. The file offers example(): a tile.Example with arrays, parameters and a NumPy reference.

    \b
    npuc kernel run my.py:softmax --check
    npuc kernel plan attention
    npuc kernel tune my.py:softmax --save choices.json
    npuc compile model.onnx -o model.npu --kernel softmax=my.py:softmax --choices choices.json
    """


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """One record for each form of a kernel: family, form, element types, targets."""
    from npuc.authoring.catalogue import records, records_json, records_text

    found = records()
    click.echo(json.dumps(records_json(found)) if as_json else records_text(found))


@command.command("run")
@kernel_argument
@click.option("--check", is_flag=True, help="Exit with code 1 where a result is wrong.")
@set_option
@target_option
@json_option
def run(kernel: str, check: bool, settings: dict[str, Any], target: str, as_json: bool) -> None:
    """Run every example eagerly and as a blob on the device, and compare with its reference."""
    from npuc.authoring.source import find
    from npuc.authoring.trial import try_example
    from npuc.authoring.words import trial_json, trial_text
    from npurt.target import load_target

    found, machine = find(kernel), load_target(target)
    found.example()  # at least one
    trials = [
        try_example(found.kernel, example, machine, {**example.params, **settings}) for example in found.examples()
    ]
    if as_json:
        click.echo(json.dumps([trial_json(trial) for trial in trials]))
    else:
        click.echo("\n".join(trial_text(trial) for trial in trials))
    if check and not all(trial.good for trial in trials):
        raise click.exceptions.Exit(1)


@command.command("plan")
@kernel_argument
@number_option
@set_option
@json_option
def plan(kernel: str, number: int, settings: dict[str, Any], as_json: bool) -> None:
    """Show the buffers of one program (bytes, memory, life) and its tasks."""
    from dataclasses import asdict

    from npuc.authoring.source import find

    found = find(kernel)
    example = _example(found, number)
    made = found.kernel.plan(example.types, {**example.params, **settings})
    click.echo(json.dumps(asdict(made)) if as_json else str(made))


@command.command("cost")
@kernel_argument
@number_option
@set_option
@target_option
@json_option
def cost(kernel: str, number: int, settings: dict[str, Any], target: str, as_json: bool) -> None:
    """Schedule an example on a target and show the time by engine."""
    from npuc.authoring.cost import cost_of
    from npuc.authoring.program import with_advice
    from npuc.authoring.source import find
    from npuc.authoring.words import cost_json, cost_text
    from npuc.schedule import OverflowRefused
    from npurt.target import load_target

    found = find(kernel)
    example = _example(found, number)
    params = {**example.params, **settings}
    try:
        made = cost_of(found.kernel, example, load_target(target), params)
    except OverflowRefused as error:
        raise with_advice(error, found.kernel, example.types, params) from error
    click.echo(json.dumps(cost_json(made)) if as_json else cost_text(made))


@command.command("tune")
@kernel_argument
@number_option
@click.option("--limit", type=POSITIVE, metavar="N", help="Try at most N candidates.")
@click.option(
    "--model",
    type=click.Path(exists=True, path_type=Path),
    metavar="MODEL",
    help="Tune for the calls that this model makes instead of an example.",
)
@click.option("--as", "what", metavar="WHAT", help="With --model: for the calls of WHAT, a kernel of the library.")
@output_option("--save", metavar="FILE", help="Write the winners to a choice file, beside what that holds.")
@compile_options
@json_option
def tune(
    kernel: str, number: int, limit: int | None, model: Path | None, what: str | None,
    save: Path | None, as_json: bool, **given: Any,
) -> None:  # fmt: skip
    """Time the candidates of the kernel's file on the machine model, and print the winner and why.

    The file offers candidates(types, params), which yields dicts of tile sizes. Times are kept in
    $XDG_CACHE_HOME/npuc/tune or ~/.cache/npuc/tune.
    """
    from npuc.answers import AnswerCache, cache_folder
    from npuc.authoring.calls import calls_of
    from npuc.authoring.choices import write_choices
    from npuc.authoring.source import find
    from npuc.authoring.tune import tune as search
    from npuc.authoring.words import tuning_json, tuning_text
    from npurt.target import load_target

    if what is not None and model is None:
        raise click.UsageError("--as needs --model: it says which calls of the model to tune for")
    found, machine = find(kernel), load_target(given["target"])
    cache = None if given["no_cache"] else AnswerCache(cache_folder("tune"))
    with progress() as report:
        if model is None:
            examples = [_example(found, number)]
        else:
            examples = calls_of(found, what or found.name, model, options_of(given), report)
        made = [search(found, example, machine, cache, report, limit) for example in examples]
    if save is not None:
        write_choices(save, [each.choice() for each in made])
    if as_json:
        click.echo(json.dumps([tuning_json(each) for each in made]))
    else:
        click.echo("\n".join(tuning_text(each) for each in made))
    if save is not None:
        note(f"{save}: written")


def _example(found: FoundKernel, number: int) -> Example:
    from npuc.authoring.errors import KernelSourceError

    found.example()  # says so where there is none
    listed = list(found.examples())
    if number > len(listed):
        raise KernelSourceError(f"kernel {found.name} has {len(listed)} examples, --example {number} is asked for")
    return listed[number - 1]
