"""Records what tilelang's kernels would launch, on a machine without a GPU.

tilelang compiles a kernel and the host function that launches it. Here the kernel is compiled to
PTX as tilelang compiles it for the GPU, and a call of the kernel interprets the host function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from tilelang.autotuner.tuner import AutoTuner
from tilelang.cache.cuda_binary_cache import CUDABinaryCache
from tilelang.contrib import nvcc
from tilelang.cuda import backend
from tilelang.jit import kernel as jit_kernel
from tilelang.jit.kernel import JITKernel
from tilelang.transform import PassConfigKey
from tvm import tirx

from tilesim.capture.maps import map_of_im2col, map_of_tiled
from tilesim.errors import UsageError
from tilesim.ptx.launch import Launch, Map, Parameter, Pointer, Scalar, Triple
from tilesim.recording import Launched, Skipped, once
from tilesim.recording.gpu import always
from tilesim.recording.tensors import Buffers
from tilesim.tilelang.host_code import Address, Descriptor, HostCode

_FLAGS = PassConfigKey.TL_DEVICE_COMPILE_FLAGS
_SCALARS: Mapping[str, str] = {
    "bool": "u8", "int8": "s8", "uint8": "u8", "int16": "s16", "uint16": "u16", "int32": "s32",
    "uint32": "u32", "int64": "s64", "uint64": "u64", "float16": "f16", "bfloat16": "bf16",
    "float32": "f32", "float64": "f64",
}  # fmt: skip
#: calls of the host function that launch nothing
_IGNORED = ("__tvm_set_device",)
_TILED, _IM2COL = "__tvm_tensormap_create_tiled", "__tvm_tensormap_create_im2col"
_AXES = ("blockIdx", "threadIdx", "tir.cluster_dim")
_DYNAMIC_SHARED = "tirx.use_dyn_shared_memory"
_COOPERATIVE, _DEPENDENT = "tirx.use_cooperative_launch", "tirx.use_programtic_dependent_launch"


class Kernel:
    """A compiled kernel in the place of tilelang's adapter: calling `func` records its launches.

    ``host_mod`` is the module with the host function, ``device_mod`` that with the kernels.
    """

    def __init__(
        self, params: list[Any], result_idx: int | list[int] | None, target: Any, func_or_mod: Any,
        host_mod: Any, device_mod: Any, device_kernel_source: str,
        pass_configs: Mapping[Any, Any] | None = None, compile_flags: Any = None,
        **options: Any,
    ) -> None:  # fmt: skip
        self.params = params
        results = [result_idx] if isinstance(result_idx, int) else result_idx or []
        self.result_idx = sorted(index % len(params) for index in results)
        self._source = device_kernel_source
        configs = dict(pass_configs or {})
        if compile_flags:
            configs[_FLAGS] = compile_flags
        (self._host,) = (host_mod[name] for name in host_mod.get_global_vars())
        self._kernels = {v.name_hint: device_mod[v] for v in device_mod.get_global_vars()}
        self._file = f"{next(iter(self._kernels))}.cu"
        ptx = compiled(device_kernel_source, target, configs)
        self._ptx = re.sub(r'(\.file\s+\d+\s+)"[^"]*/tvm_kernels\.cu"', rf'\1"{self._file}"', ptx)

    @staticmethod
    def record(launched: Launched) -> None:
        """Takes the launches; inside `recording` it is its caller's.

        Raises:
            UsageError: they are not recorded.
        """
        raise UsageError(f"{launched.launch.entry} was compiled to be checked: it cannot run")

    def __call__(self, *inputs: Any) -> Any:
        return self.func(*inputs)

    def func(self, *inputs: Any, **options: object) -> Any:
        """Records the launches for ``inputs``; its results are tensors without storage.

        Raises:
            UsageError: the kernel does not take these.
        """
        given = iter(inputs)
        if len(inputs) != len(self.params) - len(self.result_idx):
            wanted = len(self.params) - len(self.result_idx)
            raise UsageError(f"the kernel takes {wanted} arguments, not {len(inputs)}")
        values = [None if i in self.result_idx else next(given) for i in range(len(self.params))]
        sizes = _sizes(self.params, values)
        for index in self.result_idx:
            param = self.params[index]
            shape = [sizes[d] if isinstance(d, tirx.Var) else int(d) for d in param.shape]
            values[index] = torch.empty(shape, dtype=param.torch_dtype(), device="meta")
        self._launch(values)
        results = [values[index] for index in self.result_idx]
        return results[0] if len(results) == 1 else results

    def _launch(self, values: Sequence[Any]) -> None:
        buffers = Buffers()

        def called(name: str, arguments: list[Any]) -> None:
            if name in (_TILED, _IM2COL):
                arguments[0].made = _map(name, arguments[1:])
            elif name in self._kernels:
                launch = _launched(self._kernels[name], arguments, buffers)
                Kernel.record(Launched(self._ptx, launch, self._source, self._file))
            elif name not in _IGNORED:
                raise UsageError(f"the host code of the kernel calls {name}: not read")

        HostCode(self._host, values, called)

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The CUDA source that tilelang made."""
        return self._source

    def get_host_source(self) -> str:
        """There is none: the host function is interpreted."""
        return ""


def compiled(source: str, target: Any, configs: Mapping[Any, Any]) -> str:
    """The PTX of a kernel, compiled as tilelang compiles it for the GPU."""
    compile_cuda = nvcc.compile_cuda

    def to_ptx(code: str, target_format: str, *args: Any, **options: Any) -> Any:
        return compile_cuda(code, "ptx", *args, **options)

    with ExitStack() as stack:
        stack.enter_context(patch.object(nvcc, "compile_cuda", to_ptx))
        stack.enter_context(patch.object(CUDABinaryCache, "load", always(None)))
        stack.enter_context(patch.object(CUDABinaryCache, "save", always(None)))
        return bytes(backend.tilelang_callback_cuda_compile(source, target, configs)).decode()


def _sizes(params: Sequence[Any], values: Sequence[Any]) -> dict[Any, int]:
    """What symbols in the shapes of the parameters are, by the tensors that are given."""
    found: dict[Any, int] = {}
    for param, value in zip(params, values, strict=True):
        for wanted, size in zip(param.shape, getattr(value, "shape", ()), strict=False):
            if isinstance(wanted, tirx.Var):
                found.setdefault(wanted, int(size))
    return found


def _map(name: str, arguments: list[Any]) -> tuple[Address, Map]:
    """What a call for a tensor map would encode, and where the tensor is."""
    kind, rank, address, *rest = arguments

    def take(count: int) -> list[int]:
        taken = [int(n) for n in rest[:count]]
        del rest[:count]
        return taken

    shape, strides = take(rank), take(rank)[1:]
    if name == _TILED:
        box, steps = take(rank), take(rank)
        interleave, swizzle, _, fill = rest
        found = map_of_tiled(kind, shape, strides, box, steps, interleave, swizzle, fill)
    else:
        steps, lower, upper = take(rank), take(rank - 2), take(rank - 2)
        pixels, channels, interleave, swizzle, _, fill = rest
        found = map_of_im2col(
            kind, shape, strides, lower, upper, channels, pixels, steps, interleave, swizzle, fill
        )
    return address, found


def _launched(kernel: Any, arguments: Sequence[Any], buffers: Buffers) -> Launch:
    """The launch of a kernel: its parameters, then what its launch parameters are named for."""
    tags = [str(tag) for tag in kernel.attrs["tirx.kernel_launch_params"]]
    numbered = [tag for tag in tags if tag not in (_COOPERATIVE, _DEPENDENT)]
    own, extents = arguments[: len(kernel.params)], arguments[len(kernel.params) :]
    numbers = dict(zip(numbered, extents, strict=True))
    grid, block, cluster = (_triple(numbers, axis) for axis in _AXES)
    params = (_parameter(*pair, buffers) for pair in zip(kernel.params, own, strict=True))
    return Launch(
        str(kernel.attrs["global_symbol"]), grid, block, cluster,
        int(numbers.get(_DYNAMIC_SHARED, 0)), None, _COOPERATIVE in tags, _DEPENDENT in tags,
        tuple(params),
    )  # fmt: skip


def _triple(numbers: Mapping[str, Any], axis: str) -> Triple:
    separator = "_" if axis.endswith("dim") else "."
    x, y, z = (int(numbers.get(f"{axis}{separator}{d}", 1)) for d in "xyz")
    return x, y, z


def _parameter(var: Any, value: Any, buffers: Buffers) -> Parameter:
    """A parameter of the kernel; ``value`` is what the host function passes."""
    name = str(var.name)
    if isinstance(value, Descriptor):
        address, found = value.made
        base = _pointer(name.removesuffix("_desc"), address, buffers)
        made: Map = replace(found, name=base.name, offset=base.offset)
        return made
    if value is None or isinstance(value, Address):
        return _pointer(name, value, buffers)
    return Scalar(name, _SCALARS[str(var.dtype)], value)


def _pointer(name: str, address: Address | None, buffers: Buffers) -> Pointer:
    if address is None:
        return Pointer(name, 0)
    base = buffers.pointer(name, address.tensor)
    return replace(base, offset=base.offset + address.offset)


@contextmanager
def recording(
    target: str,
    record: Callable[[Launched], None],
    *,
    tensors: str = "meta",
    skip: Callable[[Skipped], None] = lambda skipped: None,
) -> Iterator[None]:
    """Within it, every launch of a tilelang kernel is handed to ``record`` instead of made.

    To be used within `torch_without_gpu`, which says what to compile for. Of an autotuned kernel
    the first configuration is launched, and ``skip`` is told how many are left out.
    """

    def cached(func: Any, out_idx: Any = None, **options: Any) -> Any:
        wanted = {name: value for name, value in options.items() if value is not None}
        wanted["execution_backend"] = "cython"
        return JITKernel(func, out_idx, **wanted)

    def call(kernel: Any, *args: Any, **options: Any) -> Any:
        adapter = kernel.adapter
        if not isinstance(adapter, Kernel):  # compiled before
            adapter = JITKernel(
                kernel.prim_func, adapter.result_idx, "cython", kernel.target,
                pass_configs=kernel.pass_configs, compile_flags=kernel.compile_flags,
            ).adapter  # fmt: skip
        return adapter.func(*args, **options)

    def tune(tuner: Any, *args: Any, **options: Any) -> Any:
        first, *others = tuner.configs
        tuner._ensure_jit_functions()
        kernel = tuner.jit_compile(**first)
        if others:
            name = str(kernel.prim_func.attrs["global_symbol"])
            left = f"{len(others)} of {len(others) + 1} configurations"
            skip(Skipped(name, left, "only the first configuration of an autotuned kernel is run"))
        return SimpleNamespace(kernel=kernel, config=first, latency=1.0, func=kernel.prim_func)

    jit, profiler = import_module("tilelang.jit"), import_module("tilelang.profiler")
    with ExitStack() as stack:
        for owner, name, ours in (
            (jit, "cached", cached), (jit_kernel, "CythonKernelAdapter", Kernel),
            (JITKernel, "__call__", call), (AutoTuner, "run", tune), (profiler, "do_bench", once),
            (Kernel, "record", staticmethod(record)),
        ):  # fmt: skip
            stack.enter_context(patch.object(owner, name, ours))
        yield
