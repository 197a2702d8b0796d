"""How a command line ends: help, exit codes, one message, no traceback."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import click
import pytest

from npuc.cli.app import COMMANDS, group
from npuc.frontend.errors import ModelRefused
from npuc.graph.options import OptionError
from npuc.tile.errors import KernelError
from npurt.errors import BlobError, DeviceError
from npurt.llm import PromptError
from tests.unit.cli.conftest import Runner


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Makes `npuc doctor` raise the exception that a test puts in this list."""
    errors: list[BaseException] = []

    @click.command("doctor")
    def command() -> None:
        raise errors[0]

    module = ModuleType("raising_command")
    vars(module)["command"] = command
    monkeypatch.setitem(sys.modules, "raising_command", module)
    monkeypatch.setitem(COMMANDS, "doctor", ("raising_command", "Raises."))
    return errors


def test_help_lists_every_command(npuc: Runner) -> None:
    result = npuc("--help")
    assert result.code == 0 and result.err == ""
    for name, (_, text) in COMMANDS.items():
        assert f"\n  {name} " in result.out and text in " ".join(result.out.split()), "lines may be wrapped"
    assert "Exit codes: 0 good, 1 a difference or failed check, 2 wrong use" in result.out


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_explains_itself(npuc: Runner, name: str) -> None:
    result = npuc(name, "-h")
    assert result.code == 0
    assert result.out.startswith(f"Usage: npuc {name} ")
    assert "--debug" in result.out


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom npuc.cli import main\nmain(['--help'])\n"
        "print(sorted({'numpy', 'onnx', 'onnx_ir', 'lief', 'npurt'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_the_version_is_one_line(npuc: Runner) -> None:
    result = npuc("--version")
    assert (result.code, result.out) == (0, "npuc 0.1.0\n")


def test_without_a_command_the_help_is_shown_as_wrong_use(npuc: Runner) -> None:
    result = npuc()
    assert result.code == 2 and result.out == "" and result.err.startswith("Usage: npuc ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "error: No such command 'nothing'.\nhelp: npuc --help\n"),
        (
            ["comple"],
            "error: No such command 'comple'. Did you mean 'compile'?\nhelp: npuc --help\n",
        ),
        (["doctor", "--nothing"], "error: No such option '--nothing'.\nhelp: npuc doctor --help\n"),
        (["inspect"], "error: Missing argument 'BLOB'.\nhelp: npuc inspect --help\n"),
        (
            ["inspect", "not-there"],
            "error: Invalid value for 'BLOB': File 'not-there' does not exist.\nhelp: npuc inspect --help\n",
        ),
    ],
)
def test_wrong_use_is_two_lines(npuc: Runner, words: list[str], message: str) -> None:
    result = npuc(*words)
    assert (result.code, result.out, result.err) == (2, "", message)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ModelRefused(["the file is empty"], "m.onnx"), 3, "error: m.onnx: the file is empty\n"),
        (KernelError("too large"), 3, "error: too large\n"),
        (OptionError("a capacity is 0"), 2, "error: a capacity is 0\n"),
        (PromptError("the prompt has 0 tokens"), 2, "error: the prompt has 0 tokens\n"),
        (DeviceError("no entry x"), 2, "error: no entry x\n"),
        (BlobError("a.npu: cut short"), 4, "error: a.npu: cut short\n"),
        (PermissionError(13, "Permission denied", "/a/b"), 2, "error: /a/b: Permission denied\n"),
        (OSError("no space"), 2, "error: no space\n"),
        (
            ZeroDivisionError("x / 0"),
            1,
            "internal error: ZeroDivisionError: x / 0\nthis is a fault of npuc; --debug shows where\n",
        ),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_an_error_has_its_exit_code_and_no_traceback(
    npuc: Runner, raising: list[BaseException], error: BaseException, code: int, message: str
) -> None:
    raising.append(error)
    result = npuc("doctor")
    assert (result.code, result.out, result.err) == (code, "", message)


@pytest.mark.parametrize("words", [("--debug", "doctor"), ("doctor", "--debug")])
def test_debug_adds_the_traceback(npuc: Runner, raising: list[BaseException], words: tuple[str, str]) -> None:
    raising.append(ModelRefused(["no"], "m"))
    result = npuc(*words)
    assert result.code == 3
    assert result.err.startswith("Traceback (most recent call last):\n")
    assert result.err.endswith("\nerror: m: no\n")


def test_a_closed_pipe_ends_quietly() -> None:
    done = subprocess.run(
        f"{sys.executable} -m npuc.cli run --help | true", shell=True, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


def test_help_puts_what_a_newcomer_needs_first(npuc: Runner) -> None:
    sections = [line for line in npuc("run", "--help").out.splitlines() if line.endswith(":") and line[0] != " "]
    assert sections == [
        "Options:",
        "Choosing tokens:",
        "Comparing with other programs:",
        "Compiling, where a MODEL is given:",
    ]


@pytest.mark.parametrize("name", ["run", "exec", "check"])
def test_sections_name_every_option_once(npuc: Runner, name: str) -> None:
    out = npuc(name, "--help").out
    command = group.get_command(click.Context(group), name)
    assert command is not None
    options = [option for option in command.params if isinstance(option, click.Option)]
    shown = [line.split()[0].rstrip(",") for line in out.splitlines() if line.startswith("  -")]
    assert sorted(shown) == sorted([*(option.opts[0] for option in options), "-h"])


def test_no_option_is_declared_twice() -> None:
    """click keeps the last of two, with a warning to the user."""

    def check(command: click.Command, words: str) -> None:
        names = [option for parameter in command.params for option in parameter.opts]
        assert len(names) == len(set(names)), words
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                check(found, f"{words} {name}")

    check(group, "npuc")
