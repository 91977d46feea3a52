"""Runs a script that launches kernels, on a machine without a GPU.

``python -m tilesim.recording.host FOLDER TARGET SCRIPT [ARGUMENTS...]`` (or ``-m MODULE`` instead
of the script) is what ``tilesim capture`` starts. Tensors of torch have shapes and strides and no
storage; every kernel that is launched goes to FOLDER as ``NAME.ptx`` with its ``NAME.json``. An
adapter is active from when the script has imported its compiler.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from traceback import print_exception
from types import ModuleType

from tilesim.capture.folder import Folder, say
from tilesim.recording import Launched, Recording
from tilesim.recording.comparisons import Comparison, counted
from tilesim.recording.without_gpu import torch_without_gpu

#: by the package that a script imports, the module whose ``recording`` records its launches
ADAPTERS = {
    "cuda.tile": "tilesim.cutile.driver", "cutlass": "tilesim.cute.driver",
    "tilelang": "tilesim.tilelang.driver", "tilus": "tilesim.tilus.driver",
    "triton": "tilesim.triton.driver",
}  # fmt: skip
#: exit code after Ctrl-C, as of every command
INTERRUPTED = 130
_CONTEXTLIB = contextlib.__file__


class Sources(Folder):
    """The folder, with the sources that compilers have made beside the kernels."""

    def add(self, launched: Launched) -> None:
        """Writes a kernel and its launch."""
        self.save(launched.ptx, launched.launch)
        if launched.source:
            (self.path / launched.source_file).write_text(launched.source)


class _Imported(MetaPathFinder):
    """Calls ``activate`` with the adapter when a compiler's package has been imported."""

    def __init__(self, activate: Callable[[str], None]) -> None:
        self._pending = {name: a for name, a in ADAPTERS.items() if name not in sys.modules}
        self._activate = activate

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Python's, of a package that has an adapter; its import ends with the activation."""
        adapter = self._pending.pop(fullname, None)
        spec = find_spec(fullname) if adapter is not None else None
        if adapter is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._activate(adapter)

        spec.loader.__dict__["exec_module"] = exec_module
        return spec


@contextmanager
def activating(activate: Callable[[str], None]) -> Iterator[None]:
    """Within it, the import of a compiler activates its adapter; those of compilers that torch has
    imported are active."""
    finder = _Imported(activate)
    for package in ADAPTERS.keys() & sys.modules.keys():
        activate(ADAPTERS[package])
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def main(arguments: list[str]) -> None:
    """See the module."""
    folder, target, *command = arguments
    os.environ.pop("TILESIM", None)  # kernels are recorded here, not checked as they are launched
    with ExitStack() as stack:
        compared: list[Comparison] = []
        if find_spec("torch") is not None:
            stack.enter_context(torch_without_gpu(target, compared.append))
        kernels = Sources(Path(folder))
        stack.callback(_say_left_out, compared)
        stack.callback(kernels.summary)

        def activate(adapter: str) -> None:
            recording: Recording = import_module(adapter).recording
            stack.enter_context(recording(target, kernels.add, tensors="cuda:0", skip=kernels.skip))

        stack.enter_context(activating(activate))
        stack.enter_context(_users_traceback())
        if command[0] == "-m":
            sys.argv = command[1:]
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = command
            sys.path.insert(0, str(Path(command[0]).resolve().parent))
            runpy.run_path(command[0], run_name="__main__")


def _say_left_out(compared: list[Comparison]) -> None:
    """Tells the user that comparisons in the script say nothing."""
    if compared:
        say(f"{counted(c.function for c in compared)}: tensors have no values here")


@contextmanager
def _users_traceback() -> Iterator[None]:
    """The traceback of what the script raises begins with the script."""
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted: what was captured so far is kept")
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        own = error.__traceback__
        while own is not None and _is_ours(own.tb_frame.f_code.co_filename):
            own = own.tb_next
        print_exception(error.with_traceback(own or error.__traceback__))
        if "DataDependent" in type(error).__name__:
            say("tensors have shapes and no values under tilesim capture: the script ends here")
        raise SystemExit(1) from None


def _is_ours(file: str) -> bool:
    return file == __file__ or file.startswith("<frozen") or file in (runpy.__file__, _CONTEXTLIB)


if __name__ == "__main__":
    main(sys.argv[1:])
