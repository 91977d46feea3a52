"""Records what CuTe DSL's kernels would launch, on a machine without a GPU.

CuTe DSL compiles kernels to PTX and their host code to machine code, which runs here against a
runtime of our own: tensor maps are packed and parameters are laid out as for the GPU.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import cutlass.testing
import torch
from cutlass._mlir import execution_engine
from cutlass.cute import runtime as cute_runtime
from cutlass.cute import testing
from cutlass.cutlass_dsl import CuTeDSL
from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction
from cutlass.utils import HardwareInfo
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from tilesim.capture.memory import DEVICE, Memory
from tilesim.capture.parameters import Described
from tilesim.cute.runtime import Call, Runtime
from tilesim.errors import UsageError
from tilesim.ptx.errors import LaunchError
from tilesim.ptx.launch import Launch, Parameter, Pointer
from tilesim.ptx.reader import read
from tilesim.ptx.tensormap import address, decode
from tilesim.recording import MULTIPROCESSORS, Distinct, Launched, Skipped
from tilesim.recording.without_gpu import always

#: how far a buffer may reach of which only the address is known
_UNKNOWN = 1 << 40
_WORD = 8
#: names of kernels have the types of their arguments in them
_LONGEST = 48
#: host code that was compiled once calls it ever after
_RUNTIME = Runtime()


class _Maps:
    """Tensor maps are what can be one, of memory that is known."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __contains__(self, data: object) -> bool:
        if not isinstance(data, bytes) or self._memory.at(address(data)) is None:
            return False
        try:
            decode(data, "")
        except LaunchError:
            return False
        return True

    def __iter__(self) -> Iterator[bytes]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _Recorder:
    """Hands launches to ``record``; knows the tensors that were made, and what was compiled."""

    def __init__(self, record: Callable[[Launched], None]) -> None:
        self._record = record
        self._memory = Memory()
        #: storages in use, by what they are asked for with
        self._storages: dict[int, tuple[Any, Any]] = {}
        #: name in the PTX and PTX, by kernel
        self._compiled: dict[str, tuple[str, str]] = {}

    def tensor(self, tensor: Any) -> Any:
        """What the DSL gets for a tensor: one on the CPU, of which nobody touches the memory."""
        if not hasattr(tensor, "untyped_storage"):
            return tensor
        asked = tensor.untyped_storage()
        if asked._cdata not in self._storages:
            own = asked
            if type(tensor) is FakeTensor:
                with unset_fake_temporarily():
                    own = torch.UntypedStorage(asked.nbytes())
            self._storages[asked._cdata] = asked, own
            self._memory.allocate(own.data_ptr(), own.nbytes(), DEVICE)
        own = self._storages[asked._cdata][1]
        if own is asked:
            return tensor
        with unset_fake_temporarily():
            made = torch.empty(0, dtype=tensor.dtype)
            return made.set_(own, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())

    def pointer(self, value: Any) -> Any:
        """What it gets for an address."""
        if self._memory.at(int(value)) is None:
            self._memory.allocate(int(value), _UNKNOWN, DEVICE)
        return value

    def function(self, compiled: Any) -> None:
        """A function was compiled."""
        found = compiled.__ptx__
        if found:
            text = Path(found).read_text() if "\n" not in found else found
            for name in re.findall(r"\.entry\s+(\w+)", text):
                short = name if len(name) < _LONGEST else f"{name[:_LONGEST]}_{len(self._compiled)}"
                text = text.replace(name, short)
                self._compiled[name] = short, text

    def launch(self, call: Call) -> None:
        """Host code launches a kernel.

        Raises:
            UsageError: it was compiled before launches were recorded.
        """
        if call.kernel not in self._compiled:
            raise UsageError(f"{call.kernel}: compile the function where it is launched")
        name, text = self._compiled[call.kernel]
        entry = next(e for e in read(text, "kernel.ptx").entries if e.name == name)
        described = Described(self._memory, _Maps(self._memory), lambda allocation: None)
        params = []
        for number, formal in enumerate(entry.params):
            place = ctypes.c_uint64.from_address(call.arguments + _WORD * number).value
            data = ctypes.string_at(place, formal.size)
            params.append(_sized(described.parameter(number, formal, data)))
        launch = Launch(
            name, call.grid, call.block, call.cluster, call.shared,
            cooperative=call.cooperative, dependent=call.dependent, params=tuple(params),
        )  # fmt: skip
        self._record(Launched(text, launch))


def _sized(parameter: Parameter) -> Parameter:
    """Without a size that nobody knows."""
    if isinstance(parameter, Pointer) and parameter.bytes == _UNKNOWN:
        return replace(parameter, bytes=None)
    return parameter


@contextmanager
def recording(
    target: str,
    record: Callable[[Launched], None],
    *,
    tensors: str = "cpu",
    skip: Callable[[Skipped], None] = lambda skipped: None,
) -> Iterator[None]:
    """Within it, every launch of a kernel of CuTe DSL is handed to ``record`` instead of made.

    Functions have to be compiled within it. Equal launches are recorded once.

    Raises:
        UsageError: a kernel was compiled before.
    """
    recorder = _Recorder(Distinct(record))
    settings, ctas = CuTeDSL._get_dsl().envar, MULTIPROCESSORS[target]
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        changes = {
            "arch": target, "lineinfo": True, "keep_tokens": frozenset({"ptx"}), "keep_ptx": True,
            "dump_dir": folder,
        }  # fmt: skip
        for name, value in changes.items():
            stack.enter_context(_set(settings, name, value))
        for owner, name, ours in (
            (execution_engine.ExecutionEngine, "__init__", _linked),
            (cute_runtime._Tensor, "__init__", _given(cute_runtime._Tensor, recorder.tensor)),
            (cute_runtime._Pointer, "__init__", _given(cute_runtime._Pointer, recorder.pointer)),
            (CudaDialectJitCompiledFunction, "__init__", _compiling(recorder.function)),
            (CudaDialectJitCompiledFunction, "num_devices", 1),
            (HardwareInfo, "__init__", always(None)),
            (HardwareInfo, "get_max_active_clusters", lambda gpu, size, *_: ctas // size),
            (HardwareInfo, "get_device_multiprocessor_count", always(ctas)),
            (testing, "benchmark", _once),
            (cutlass.testing, "benchmark", _once),
            (_RUNTIME, "launched", recorder.launch),
        ):  # fmt: skip
            stack.enter_context(patch.object(owner, name, ours))
        yield
    failed, _RUNTIME.failed = _RUNTIME.failed, None
    if failed is not None:
        raise failed


def _once(
    function: Callable[..., object], *, kernel_arguments: Any = None,
    workspace_generator: Callable[[], Any] | None = None, **_: Any,
) -> float:  # fmt: skip
    """A measurement: the call is made once."""
    given = workspace_generator() if workspace_generator is not None else kernel_arguments
    if given is None:
        function()
    else:
        function(*given.args, **given.kwargs)
    return 1.0


@contextmanager
def _set(settings: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(settings, name)
    setattr(settings, name, value)
    try:
        yield
    finally:
        setattr(settings, name, before)


_INIT = execution_engine.ExecutionEngine.__init__
_COMPILED = CudaDialectJitCompiledFunction.__init__


def _linked(
    engine: Any, module: Any, opt_level: int = 2, shared_libs: object = (), **options: Any
) -> None:
    """Links host code with `_RUNTIME` instead of the runtime of CuTe DSL."""
    _INIT(engine, module, opt_level=opt_level, shared_libs=[], **options)
    for name, function in _RUNTIME.functions.items():
        engine.raw_register_runtime(name, ctypes.cast(function, ctypes.c_void_p))


def _given(kind: Any, instead: Callable[[Any], Any]) -> Callable[..., None]:
    """Its constructor, with another first argument."""
    init = kind.__init__

    def constructor(made: Any, given: Any, *args: Any, **options: Any) -> None:
        init(made, instead(given), *args, **options)

    return constructor


def _compiling(tell: Callable[[Any], None]) -> Callable[..., None]:
    def constructor(made: Any, *args: Any, **options: Any) -> None:
        _COMPILED(made, *args, **options)
        tell(made)

    return constructor
