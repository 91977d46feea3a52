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
from tilesim.errors import UsageError
from tilesim.recording import Launched, Recording
from tilesim.recording.inductor import compiling
from tilesim.recording.left_out import LeftOut, counted
from tilesim.recording.without_gpu import torch_without_gpu

#: by the package that a script imports, the module whose ``recording`` records its launches
ADAPTERS = {
    "cuda.tile": "tilesim.cutile.driver", "cutlass": "tilesim.cute.driver",
    "helion": "tilesim.recording.inductor",
    "tilelang": "tilesim.tilelang.driver", "tilus": "tilesim.tilus.driver",
    "triton": "tilesim.triton.driver",
}  # fmt: skip
#: exit code after Ctrl-C, as of every command
INTERRUPTED = 130
#: before the script: ``torch.compile`` compiles
INDUCTOR = "--inductor"
_CONTEXTLIB = contextlib.__file__


class Sources(Folder):
    """The folder, with the sources that compilers have made beside the kernels."""

    def add(self, launched: Launched) -> None:
        """Writes a kernel and its launch."""
        if not self.is_new(launched.ptx, launched.launch):
            return
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
    inductor = command[0] == INDUCTOR
    if inductor:
        del command[0]
    os.environ.pop("TILESIM", None)  # kernels are recorded here, not checked as they are launched
    kernels = Sources(Path(folder))
    active: list[str] = []
    try:
        with _users_traceback(), _recorded(kernels, target, active, inductor):
            if command[0] == "-m":
                sys.argv = command[1:]
                runpy.run_module(command[1], run_name="__main__", alter_sys=True)
            else:
                sys.argv = command
                sys.path.insert(0, str(Path(command[0]).resolve().parent))
                runpy.run_path(command[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    if not kernels.written:
        say(_why_nothing(active))
        raise SystemExit(1)


@contextmanager
def _recorded(kernels: Sources, target: str, active: list[str], inductor: bool) -> Iterator[None]:
    """Within it, launches go to ``kernels``; the adapters of compilers that are imported are added
    to ``active``. A summary is said at the end."""
    with ExitStack() as stack:
        left_out: list[LeftOut] = []
        if find_spec("torch") is not None:
            compile_ = import_module("torch").compile
            stack.enter_context(torch_without_gpu(target, left_out.append))
            if inductor:
                stack.enter_context(compiling(compile_))
        stack.callback(_say_left_out, left_out)
        stack.callback(kernels.summary)

        def activate(adapter: str) -> None:
            try:
                recording: Recording = import_module(adapter).recording
            except ImportError as error:  # the script may do without this compiler
                (compiler,) = (name for name, one in ADAPTERS.items() if one == adapter)
                say(f"kernels of this version of {compiler} cannot be captured: {error}")
                return
            active.append(adapter)
            stack.enter_context(recording(target, kernels.add, tensors="cuda:0", skip=kernels.skip))

        stack.enter_context(activating(activate))
        yield


def _why_nothing(active: Sequence[str]) -> str:
    """Why nothing was captured of a script that has ended; ``active`` are the adapters."""
    if not active:
        return f"the script has imported none of {', '.join(ADAPTERS)}"
    return (
        "the script launched no kernel; kernels of torch itself, and of "
        "processes that the script starts, are not captured"
    )


def _say_left_out(left_out: list[LeftOut]) -> None:
    """Tells the user what of the script was not done."""
    if left_out:
        say(f"left out: {counted(one.function for one in left_out)}")


@contextmanager
def _users_traceback() -> Iterator[None]:
    """The traceback of what the script raises begins with the script."""
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted: what was captured so far is kept")
        raise SystemExit(INTERRUPTED) from None
    except UsageError as error:
        say(f"{error}; the script has ended there")
        raise SystemExit(1) from None
    except Exception as error:
        own = error.__traceback__
        while own is not None and _is_ours(own.tb_frame.f_code.co_filename):
            own = own.tb_next
        print_exception(error.with_traceback(own or error.__traceback__))
        raise SystemExit(1) from None


def _is_ours(file: str) -> bool:
    return file == __file__ or file.startswith("<frozen") or file in (runpy.__file__, _CONTEXTLIB)


if __name__ == "__main__":
    main(sys.argv[1:])
