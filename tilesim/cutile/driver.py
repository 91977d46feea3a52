"""Records what cuTile's kernels would launch, on a machine without a GPU.

cuTile compiles a kernel when it is launched, by ``tileiras``, which runs ``ptxas``: its PTX is kept
there. The launch is laid out by cuTile's own code, against a driver of ours, and the tensor maps
that the GPU's driver would make are made by the code that ``tileiras`` has compiled for that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from cuda import tile
from cuda.tile import _compile

from tilesim.capture import devices
from tilesim.capture.ptxas import KERNEL, Compiled, compiled, keeping
from tilesim.cutile.host_code import HostCode
from tilesim.cutile.runtime import LOADER, Runtime
from tilesim.errors import UsageError
from tilesim.ptx.launch import Launch, Triple
from tilesim.ptx.parser import read
from tilesim.recording import Launched, Skipped
from tilesim.recording.host_calls import Call
from tilesim.recording.on_device import Tensors

#: cuTile asks for functions of the driver once
_RUNTIME = Runtime()
sys.modules.setdefault(LOADER, _RUNTIME.module())


#: what was compiled, by the number of its library: cuTile keeps kernels for its process
_COMPILED: list[Compiled] = []


class _Recorder:
    """Hands launches to ``record``."""

    def __init__(self, target: str, record: Callable[[Launched], None]) -> None:
        self._target = target
        self._record = record
        self.tensors = Tensors()

    def compile(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """cuTile's method that compiles a kernel, with its PTX kept."""
        capability = devices.DEVICES[self._target].capability

        def ours(kernel: Any, signature: Any, context: Any, *_: Any) -> Any:
            with TemporaryDirectory() as folder:
                with patch.dict(os.environ, keeping(Path(folder))):
                    made = own(kernel, signature, context, capability)
                symbol = made[1]
                _COMPILED.extend(c for c in compiled(Path(folder)) if symbol in c.entries)
            return made

        return ours

    def launch(self, call: Call) -> None:
        """cuTile launches a kernel.

        Raises:
            UsageError: its PTX is not known, or is for another target, or its parameters are not
                known.
        """
        found = _COMPILED[call.library - 1] if call.library else None
        if found is None or call.kernel not in found.entries:
            raise UsageError(f"{call.kernel}: tileiras has run no ptxas that was seen")
        if found.arch != self._target:
            raise UsageError(
                f"{call.kernel} was compiled for {found.arch} in this process, and cuTile does "
                "not compile it again: start a new process"
            )
        module = read(found.ptx, "kernel.ptx")
        entry = next(e for e in module.entries if e.name == call.kernel)
        given = [formal for formal in entry.params if formal.linkage != "hidden"]
        data = call.passed(given)
        if len(given) < len(entry.params):
            code = HostCode(found.host, self._target)
            data = [*code.filled(call.kernel, entry.params, data)]
        params, buffers = self.tensors.parameters(entry.params, data)
        short = KERNEL.sub("", call.kernel)
        text = found.ptx.replace(call.kernel, short)
        cluster = _cluster(entry.directives.get("reqnctapercluster", call.cluster))
        # cuTile counts blocks, each of which is a cluster
        x, y, z = (n * ctas for n, ctas in zip(call.grid, cluster, strict=True))
        launch = Launch(
            short, (x, y, z), cluster=cluster, dynamic_shared=call.shared,
            cooperative=call.cooperative, dependent=call.dependent, params=params, buffers=buffers,
        )  # fmt: skip
        self._record(Launched(text, launch))


def _cluster(numbers: tuple[int, ...]) -> Triple:
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


@contextmanager
def recording(
    target: str,
    record: Callable[[Launched], None],
    *,
    tensors: str = "cpu",
    skip: Callable[[Skipped], None] = lambda skipped: None,
) -> Iterator[None]:
    """Within it, every launch of a kernel of cuTile is handed to ``record`` instead of made.

    Kernels have to be compiled within it.

    Raises:
        UsageError: a kernel was compiled before, or a launch cannot be described.
    """
    recorder = _Recorder(target, record)
    launch = tile.launch

    def launched(stream: Any, grid: Any, kernel: Any, given: Any, /, **options: Any) -> None:
        launch(0, grid, kernel, tuple(map(recorder.tensors.handed, given)), **options)
        _RUNTIME.finish()

    with ExitStack() as stack:
        for owner, name, ours in (
            (tile, "launch", launched),
            (tile.kernel, "_compile", recorder.compile(tile.kernel._compile)),
            (_compile, "cache_lookup", lambda *_: None),
            (_RUNTIME, "launched", recorder.launch),
            (_RUNTIME, "loaded", lambda: len(_COMPILED)),
            (_RUNTIME, "target", target),
        ):  # fmt: skip
            stack.enter_context(patch.object(owner, name, ours))
        yield
