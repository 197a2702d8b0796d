"""Kernels by the words that people name them with: ``my.py:f``, a name of the library, a name of a package."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from npuc.authoring.errors import KernelSourceError
from npuc.authoring.offered import Candidates, Sizes, checked_candidates, examples_of, faults_of
from npuc.authoring.packages import load_offer, offers
from npuc.tile import ArrayType, Example, Kernel
from npukernels import registry
from npukernels.forms import FORMS


@dataclass(frozen=True)
class FoundKernel:
    """A kernel with what its file says about it.

    name: as people call it; words: how it was found. origin: the file without its folder, "library", or the package
    with its version. candidates: tile sizes worth trying, for (types, params); None where the file offers none.
    examples: calls to try it with, in order.
    """

    name: str
    words: str
    kernel: Kernel
    origin: str
    candidates: Candidates | None
    examples: Callable[[], Iterator[Example]]

    @property
    def digest(self) -> str:
        """SHA-256 of the source text of the kernel's file: what it calls there counts, too."""
        file = inspect.getsourcefile(self.kernel.function)
        assert file is not None, "a kernel is a function of a file"
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()

    def example(self) -> Example:
        """The first example. Errors: KernelSourceError where there is none."""
        found = next(self.examples(), None)
        if found is None:
            raise KernelSourceError(
                f"kernel {self.name}: its file offers no example(); define one that returns a tile.Example "
                f"(arrays, params, reference)"
            )
        return found


def find(words: str) -> FoundKernel:
    """The kernel of ``FILE.py:NAME``, ``FILE.py`` (where it has only one), or of a name.

    Runs the file. Errors: KernelSourceError.
    """
    file, colon, name = words.rpartition(":")
    if colon and file.endswith(".py"):
        return _in_file(Path(file), name)
    if words.endswith(".py"):
        return _in_file(Path(words), None)
    if words in registry.KERNELS:
        return _of_library(words)
    offered = offers()
    if words in offered:
        return _of_module(load_offer(offered[words]), words, words, offered[words].origin)
    known = [*registry.KERNELS, *offered]
    close = get_close_matches(words, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
    raise KernelSourceError(f"no kernel {words!r}: {hint}; a kernel of a file is FILE.py:NAME")


def _of_library(name: str) -> FoundKernel:
    spec = registry.get(name)

    def examples() -> Iterator[Example]:
        return (form.example(form.dtypes[0]) for form in FORMS if form.kernel == name)

    def candidates(types: list[ArrayType | None], params: Sizes) -> Iterable[Sizes]:
        return spec.candidates(types, params, None)

    return FoundKernel(name, name, spec.kernel, "library", candidates, examples)


def _in_file(path: Path, name: str | None) -> FoundKernel:
    module = _run(path)
    kernels = {key: value for key, value in vars(module).items() if isinstance(value, Kernel)}
    own = {key: value for key, value in kernels.items() if value.function.__module__ == module.__name__}
    if name is None:
        if len(own) != 1:
            raise KernelSourceError(f"{path} has {_listed(own)}: say which, {path.name}:NAME")
        name = next(iter(own))
    if name not in kernels:
        what = "is no kernel: put @tile.kernel above it" if hasattr(module, name) else "does not exist"
        raise KernelSourceError(f"{path}: {name} {what}; the file has {_listed(own)}")
    return _of_module((module, kernels[name]), name, f"{path}:{name}", path.name)


def _of_module(found: tuple[ModuleType, Kernel], name: str, words: str, origin: str) -> FoundKernel:
    """Its examples are what ``NAME_example`` returns, else ``example``: one Example or several; candidates alike."""
    module, kernel = found
    own = kernel.function.__name__
    example = getattr(module, f"{own}_example", None) or getattr(module, "example", None)
    candidates = getattr(module, f"{own}_candidates", None) or getattr(module, "candidates", None)

    def examples() -> Iterator[Example]:
        return iter(()) if example is None else examples_of(example, name, origin)

    checked = None if candidates is None else checked_candidates(candidates, name, origin)
    return FoundKernel(name, words, kernel, origin, checked, examples)


def _run(path: Path) -> ModuleType:
    if not path.is_file():
        raise KernelSourceError(f"there is no file {path}")
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"_npuc_kernel_file_{path.stem}_{digest}", path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise KernelSourceError(f"{path}:{error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise KernelSourceError(f"{path} fails when it is run: {faults_of(error)}") from error
    return module


def _listed(kernels: Mapping[str, Kernel]) -> str:
    return f"the kernels {', '.join(kernels)}" if kernels else "no kernel"
