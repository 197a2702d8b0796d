"""`npuc roofline`."""

from __future__ import annotations

import json

import click

from npuc.cli.options import POSITIVE, json_option, numbers_option


@click.command("roofline")
@click.option("--target", default="ascend950", show_default=True, metavar="T", help="Machine: a name or a .toml.")
@numbers_option("--heads", default="16,32,64,128", help="Query heads of one token; they share one cache head.")
@numbers_option("--topk", default="512,1024", help="Selected cache rows of one token.")
@click.option("--dim", type=POSITIVE, default=512, show_default=True, help="Channels of a cache row; its value too.")
@click.option("--type", "dtype", default="bf16", show_default=True, metavar="TYPE", help="Element type.")
@json_option
def command(target: str, heads: tuple[int, ...], topk: tuple[int, ...], dim: int, dtype: str, as_json: bool) -> None:
    """Cycles that sparse attention of one token needs at least: multiplications against memory, on one core or tile.

    Keys and values are the same rows, so each selected row crosses once; queries and results cross once, too.
    """
    from npuc.report.roofline import roofline, roofline_text

    found = roofline(target, heads, topk, dim, dtype)
    click.echo(json.dumps(found) if as_json else roofline_text(found), nl=as_json)
