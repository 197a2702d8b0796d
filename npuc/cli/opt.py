"""`npuc opt`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npuc.cli.options import dim_option, keep_inputs, note, output_option

if TYPE_CHECKING:
    import onnx_ir as ir


@click.command("opt")
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--step", type=click.Choice(["pairs-to-state"]), required=True, help="The rewrite.")
@output_option("-o", "--output", metavar="X.onnx", help="The file to write.", required=True)
@dim_option
def command(model: Path, step: str, output: Path, dims: tuple[tuple[str, int], ...]) -> None:
    """Rewrite MODEL by one step and save it as ONNX.

    pairs-to-state: each pair past_key_values.* / present.* becomes a variable of the graph (npuc.ReadValue and
    npuc.Assign). The result is an input of `npuc compile` like any other.
    """
    from npuc.frontend import check_model, load
    from npuc.graph.state_write import pairs_to_state

    assert step == "pairs-to-state", "the only choice"
    keep_inputs(output, model)
    loaded = load(model)
    check_model(loaded)
    _save(pairs_to_state(loaded.model, dict(dims)), output)
    note(f"{output}: written")


def _save(model: ir.Model, output: Path) -> None:
    """Writes the model whole or not at all; weights that lay outside the model file lie in OUTPUT.data afterwards."""
    import onnx_ir as ir

    weights = f"{output.name}.data"
    outside = any(isinstance(value.const_value, ir.ExternalTensor) for value in model.graph.initializers.values())
    with tempfile.TemporaryDirectory(prefix=".npuc-", dir=output.parent) as folder:
        scratch = Path(folder)
        ir.save(model, scratch / output.name, external_data=weights if outside else None)
        if outside:
            (scratch / weights).replace(output.with_name(weights))
        (scratch / output.name).replace(output)
