"""The group `npuc`: which commands there are, and how a run ends (exit codes, messages, Ctrl-C, a closed pipe)."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

import click

from npuc import __version__
from npuc.cli.errors import INTERRUPTED, OK, WRONG_USE, exit_code_of, message_of

# name: (module, one line of help). A command's module is imported when the command runs, or when its help is asked for.
COMMANDS = {
    "compile": ("npuc.cli.compile", "Compile a model into a blob."),
    "run": ("npuc.cli.run", "Answer a prompt with a language model."),
    "exec": ("npuc.cli.exec", "Run any graph on tensors from a file."),
    "estimate": ("npuc.cli.estimate", "Say whether a model fits, and how fast it will be, before any compile."),
    "check": ("npuc.cli.check", "Compare a model, or its blob, with onnxruntime; name what diverges first."),
    "inspect": ("npuc.cli.inspect", "Show what a blob holds: tasks, memory, sections, states."),
    "disasm": ("npuc.cli.disasm", "Print a blob's whole program as stable text."),
    "profile": ("npuc.cli.profile", "Show where a blob's time goes, against a bound that tiles cannot move."),
    "bench": ("npuc.cli.bench", "Measure tokens per second of a blob on this host."),
    "diff": ("npuc.cli.diff", "Compare two programs; exit code 1 where they differ."),
    "kernel": ("npuc.cli.kernel", "Try, show, price and tune kernels of the tile language."),
    "roofline": ("npuc.cli.roofline", "Show what bounds sparse attention on a machine."),
    "ops": ("npuc.cli.ops", "List the operators that npuc compiles, and how each is done."),
    "targets": ("npuc.cli.targets", "List the machines, or show one's numbers and their sources."),
    "opt": ("npuc.cli.opt", "Rewrite a model by a chosen step."),
    "models": ("npuc.cli.models", "Fetch a model that npuc knows by name, or write its graph alone."),
    "doctor": ("npuc.cli.doctor", "Check this installation."),
}
EPILOG = (
    "Exit codes: 0 good, 1 a difference or failed check, 2 wrong use, 3 the model is refused, 4 the blob is refused."
)


COMPLETE = "_NPUC_COMPLETE"
"""Set by the shell when it asks what can be completed, or for its script: docs/cli.md. The name is click's rule."""

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def _set_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.find_root().obj = True


DEBUG = click.Option(
    ["--debug"], is_flag=True, expose_value=False, callback=_set_debug, help="Show the traceback of an error, too."
)


class LazyGroup(click.Group):
    """A group whose commands are named in `COMMANDS` and imported on use, so that `npuc --help` starts at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        for each in (command, *getattr(command, "commands", {}).values()):
            if DEBUG not in each.params:
                each.params.append(DEBUG)  # so that it may stand behind the command, too
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        close = get_close_matches(args[0], COMMANDS, n=1) if args and args[0] not in COMMANDS else []
        if close:
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {close[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, epilog=EPILOG, params=[DEBUG], context_settings=SETTINGS)
@click.version_option(__version__, message="npuc %(version)s")
def group() -> None:
    """Compile language models from ONNX to NPU programs, and run them on a simulated NPU.

    \b
    npuc run --prompt 'In the beginning'       the embedded model, compiled on the fly
    npuc compile MODEL -o model.npu            a model.onnx, or an exported folder
    npuc run model.npu --prompt 'Hello'
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; prints at most one message, without a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    context: click.Context | None = None
    asked = os.environ.get(COMPLETE)
    if asked:
        from click.shell_completion import shell_complete

        return shell_complete(group, {}, "npuc", COMPLETE, asked)
    try:
        context = group.make_context("npuc", words)
        with context:
            group.invoke(context)
        if sys.stdout is not None:  # None where it was closed before the start
            sys.stdout.flush()
        return OK
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        return _usage(error)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); stdout is replaced to keep the interpreter's last flush quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        return _failed(error, debug=context is not None and bool(context.obj))


def _usage(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return WRONG_USE
    click.echo(f"error: {error.format_message()}", err=True)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"help: {error.ctx.command_path} --help", err=True)
    return WRONG_USE


def _failed(error: Exception, *, debug: bool) -> int:
    code = exit_code_of(error)
    if debug:
        traceback.print_exception(error)
    if code is None:
        click.echo(f"internal error: {type(error).__name__}: {error}", err=True)
        click.echo("this is a fault of npuc; --debug shows where", err=True)
        return 1
    click.echo(f"error: {message_of(error)}", err=True)
    return code
