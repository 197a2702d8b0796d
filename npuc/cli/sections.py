"""Help in sections, so that a newcomer finds the few options that matter before the many that do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

OTHERS = "Options"


class SectionedCommand(click.Command):
    """A command whose help shows its options under titles.

    sections: title: names of parameters. Sections come in their order; options that are in none come before them.
    """

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self._sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        titles = {name: title for title, names in self._sections.items() for name in names}
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in (OTHERS, *self._sections)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                rows[titles.get(parameter.name or "", OTHERS)].append(record)
        for title, records in rows.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
