"""Runs a script that launches Triton kernels, on a machine without a GPU.

``python -m tilesim.triton.host FOLDER TARGET SCRIPT [ARGUMENTS...]`` (or ``-m MODULE`` instead of
the script) is what ``tilesim capture`` starts. Tensors of torch have shapes and strides and no
storage; every kernel that is launched goes to FOLDER as ``NAME.ptx`` with its ``NAME.json``.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from traceback import print_exception
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from triton import testing

from tilesim.ptx.description import dumps
from tilesim.triton.autotuning import Skipped, once
from tilesim.triton.driver import MULTIPROCESSORS, Launched, recording
from tilesim.words import count

#: exit code after Ctrl-C, as of every command
INTERRUPTED = 130
_CONTEXTLIB = contextlib.__file__
_SHARED_BYTES, _L2_BYTES, _MEMORY_BYTES = 232448, 50 << 20, 80 << 30


class Folder:
    """Where kernels go: one pair of files per distinct kernel and launch."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._names: dict[str, int] = {}
        self._skipped = 0

    def save(self, launched: Launched) -> None:
        """Writes the pair, and says so."""
        entry = launched.launch.entry
        number = self._names.get(entry, 0)
        self._names[entry] = number + 1
        name = f"{entry}_{number}" if number else entry
        (self._path / f"{name}.ptx").write_text(launched.ptx)
        (self._path / f"{name}.json").write_text(dumps(launched.launch))
        grid = "x".join(map(str, launched.launch.grid))
        _say(f"captured {name}: {grid} CTAs, {launched.launch.about}")

    def skip(self, skipped: Skipped) -> None:
        """Says what is not captured."""
        self._skipped += 1
        _say(f"skipped {skipped}")

    def summary(self) -> None:
        """Says how much there is."""
        launches = count(sum(self._names.values()), "kernel and launch configuration")
        left = f"; {count(self._skipped, 'configuration')} not launched" if self._skipped else ""
        _say(f"captured {launches} into {self._path}{left}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def torch_without_gpu(target: str) -> Iterator[None]:
    """Tensors on "cuda" are described only; what asks for the GPU is told of ``target``'s."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    capability = int(target[3:-2]), int(target[-2])
    properties = SimpleNamespace(
        name=f"tilesim {target}", major=capability[0], minor=capability[1],
        multi_processor_count=MULTIPROCESSORS[target], total_memory=_MEMORY_BYTES,
        L2_cache_size=_L2_BYTES, shared_memory_per_block_optin=_SHARED_BYTES, warp_size=32,
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "synchronize": None,
        "get_device_capability": capability, "get_device_properties": properties,
        "get_device_name": properties.name, "empty_cache": None, "set_device": None,
    }  # fmt: skip
    with ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(patch.object(torch.cuda, name, _always(answer)))
        for name in ("Stream", "Event", "stream", "device"):
            stack.enter_context(patch.object(torch.cuda, name, _Nothing))
        for name in ("do_bench", "do_bench_cudagraph"):
            stack.enter_context(patch.object(testing, name, once))
        stack.enter_context(patch.object(torch.testing, "assert_close", _always(None)))
        stack.enter_context(patch.object(torch, "allclose", _always(True)))
        # that a tensor has no storage is no mistake of the script
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield


def _always(answer: Any) -> Any:
    def function(*args: object, **options: object) -> Any:
        return answer

    return function


class _Nothing:
    """A stream, an event or a device to work on: nothing runs there, and it takes no time."""

    def __init__(self, *args: object, **options: object) -> None:
        self.cuda_stream = 0

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def record(self, *args: object) -> None:
        """Nothing is waited for."""

    wait_stream = wait_event = wait = synchronize = record

    def elapsed_time(self, end: object) -> float:
        """Milliseconds since."""
        return 1.0


def main(arguments: list[str]) -> None:
    """See the module."""
    folder, target, *command = arguments
    with ExitStack() as stack:
        if find_spec("torch") is not None:
            stack.enter_context(torch_without_gpu(target))
        kernels = Folder(Path(folder))
        stack.callback(kernels.summary)
        stack.enter_context(recording(target, kernels.save, tensors="cuda", skip=kernels.skip))
        stack.enter_context(_users_traceback())
        if command[0] == "-m":
            sys.argv = command[1:]
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = command
            sys.path.insert(0, str(Path(command[0]).resolve().parent))
            runpy.run_path(command[0], run_name="__main__")


@contextmanager
def _users_traceback() -> Iterator[None]:
    """The traceback of what the script raises begins with the script."""
    try:
        yield
    except KeyboardInterrupt:
        _say("interrupted: what was captured so far is kept")
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        own = error.__traceback__
        while own is not None and _is_ours(own.tb_frame.f_code.co_filename):
            own = own.tb_next
        print_exception(error.with_traceback(own or error.__traceback__))
        if "DataDependent" in type(error).__name__:
            _say("tensors have shapes and no values under tilesim capture: the script ends here")
        raise SystemExit(1) from None


def _is_ours(file: str) -> bool:
    return file == __file__ or file.startswith("<frozen") or file in (runpy.__file__, _CONTEXTLIB)


if __name__ == "__main__":
    main(sys.argv[1:])
