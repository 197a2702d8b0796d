"""The command line: `main` is the console script. Each command has its own file; heavy imports stand inside it."""

from npuc.cli.app import main

__all__ = ["main"]
