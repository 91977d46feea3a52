"""Records what CuTe DSL's kernels would launch, on a machine without a GPU.

CuTe DSL compiles kernels to PTX and their host code to machine code, which runs here against a
runtime of our own: tensor maps are packed and parameters are laid out as for the GPU.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import cutlass.testing
from cutlass._mlir import execution_engine
from cutlass.cute import runtime as cute_runtime
from cutlass.cute import testing
from cutlass.cutlass_dsl import CuTeDSL
from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction
from cutlass.utils import HardwareInfo
from torch._subclasses.fake_tensor import FakeTensor

from tilesim.cute.runtime import Runtime, unpacked
from tilesim.errors import UsageError
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.recording import MULTIPROCESSORS, Launched, Skipped
from tilesim.recording.gpu import always
from tilesim.recording.host_calls import Call
from tilesim.recording.on_device import Tensors

#: names of kernels have the types of their arguments in them
_LONGEST = 48
#: host code that was compiled once calls it ever after
_RUNTIME = Runtime()


class _Recorder:
    """Hands launches to ``record``; knows the tensors that were made, and what was compiled."""

    def __init__(self, record: Callable[[Launched], None]) -> None:
        self._record = record
        self.tensors = Tensors()
        #: name in the PTX and PTX, by kernel
        self._compiled: dict[str, tuple[str, str]] = {}

    def function(self, compiled: Any) -> None:
        """A function was compiled. One that only the host runs names a file that does not exist."""
        found = compiled.__ptx__
        if found and ("\n" in found or Path(found).exists()):
            text = found if "\n" in found else Path(found).read_text()
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
        params, buffers = self.tensors.parameters(entry.params, call.passed(entry.params))
        launch = Launch(
            name, call.grid, call.block, call.cluster, call.shared,
            cooperative=call.cooperative, dependent=call.dependent, params=params, buffers=buffers,
        )  # fmt: skip
        self._record(Launched(text, launch))


@contextmanager
def recording(
    target: str,
    record: Callable[[Launched], None],
    *,
    tensors: str = "cpu",
    skip: Callable[[Skipped], None] = lambda skipped: None,
) -> Iterator[None]:
    """Within it, every launch of a kernel of CuTe DSL is handed to ``record`` instead of made.

    Functions have to be compiled within it.

    Raises:
        UsageError: a kernel was compiled before.
    """
    recorder = _Recorder(record)
    given = recorder.tensors
    through_ffi = _through_ffi(given.handed) if find_spec("tvm_ffi") is not None else ()
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
            (cute_runtime._Tensor, "__init__", _given(cute_runtime._Tensor, given.handed)),
            (FakeTensor, "data_ptr", lambda tensor: given.address(tensor)),
            (cute_runtime._Pointer, "__init__", _given(cute_runtime._Pointer, given.pointer)),
            (CudaDialectJitCompiledFunction, "__init__", _compiling(recorder.function)),
            (CudaDialectJitCompiledFunction, "num_devices", 1),
            (HardwareInfo, "__init__", always(None)),
            (HardwareInfo, "get_max_active_clusters", lambda gpu, size, *_: ctas // size),
            (HardwareInfo, "get_device_multiprocessor_count", always(ctas)),
            (testing, "benchmark", _once),
            (cutlass.testing, "benchmark", _once),
            (_RUNTIME, "launched", recorder.launch),
            *through_ffi,
        ):  # fmt: skip
            stack.enter_context(patch.object(owner, name, ours))
        try:
            yield
        finally:  # what the host code raises after a launch that failed follows from that
            _RUNTIME.finish()


def _through_ffi(given: Callable[[Any], Any]) -> Iterator[tuple[Any, str, Any]]:
    """What is put in the place of what, for functions that are compiled with TVM FFI: these link
    their host code once more, and take tensors of torch as they are."""
    import tvm_ffi
    from cutlass.cutlass_dsl import tvm_ffi_provider as provider

    def linked(function: Any) -> Any:
        if function.engine is None:
            return None
        called = unpacked(function.engine.raw_lookup(f"__tvm_ffi_{function.function_name}"))
        place = ctypes.cast(called, ctypes.c_void_p).value
        return tvm_ffi.Function.__from_extern_c__(
            place, keep_alive_object=(function.engine, called)
        )

    def handed(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(map(handed, value))
        is_tensor = hasattr(value, "untyped_storage")
        return tvm_ffi.from_dlpack(given(value)) if is_tensor else value

    def calling(call: Callable[..., Any]) -> Callable[..., Any]:
        def ours(function: Any, *args: Any, **options: Any) -> Any:
            named = {name: handed(value) for name, value in options.items()}
            return call(function, *map(handed, args), **named)

        return ours

    yield provider.TVMFFIJitCompiledFunctionBase, "_create_tvm_ffi_function", linked
    for kind in (
        provider.TVMFFIJitCompiledFunction, provider.TVMFFIJitCompiledFunctionWithKwargs,
    ):  # fmt: skip
        yield kind, "__call__", calling(kind.__call__)


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
