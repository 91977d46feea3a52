"""``torch.compile`` and Helion on a machine without a GPU: what compiles is told of one as well.

Their kernels are Triton's, and are launched by Triton. Tried with torch 2.13 and Helion 1.5.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType
from typing import Any
from unittest.mock import patch

from tilesim.recording import Launched, once

#: settings of Inductor: kernels are compiled here, and launched by Triton; graphs are the GPU's
_SETTINGS = {
    "use_static_cuda_launcher": False, "compile_threads": 1, "force_disable_caches": True,
    "max_autotune_gemm_backends": "TRITON", "autotune_in_subproc": False,
    "benchmark_fusion": False, "benchmark_epilogue_fusion": False,
    "triton.cudagraphs": False, "triton.cudagraph_trees": False,
}  # fmt: skip
#: what a torch for the GPU says that it is built for
_CUDA = "13.0"
_STATE_BYTES = 16


@contextmanager
def inductor_without_gpu() -> Iterator[None]:
    """Within it, functions that ``torch.compile`` is given are compiled and launched. What cannot
    be compiled is run as it is written.

    Torch is told of a GPU already, and tensors are of a `FakeTensorMode`.
    """
    import torch
    import torch._dynamo
    import torch._inductor.config
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import codecache, select_algorithm
    from torch._inductor.fx_passes import joint_graph, post_grad
    from torch._inductor.runtime import triton_helpers, triton_heuristics
    from triton.compiler.compiler import CompiledKernel

    answers: tuple[tuple[Any, str, Any], ...] = (
        (torch.cuda, "_exchange_device", 0), (torch.cuda, "_maybe_exchange_device", 0),
        (torch.cuda, "set_rng_state", None), (torch.cuda, "set_device", None),
        (torch._C, "_cuda_getCurrentRawStream", 0), (triton_helpers, "set_driver_to_gpu", None),
        (CudaInterface, "exchange_device", 0), (CudaInterface, "maybe_exchange_device", 0),
        (CudaInterface, "get_raw_stream", 0), (CudaInterface, "synchronize", None),
        (CudaInterface, "is_available", True), (CudaInterface, "device_count", 1),
        (CudaInterface, "current_device", 0), (CudaInterface.Worker, "current_device", 0),
    )  # fmt: skip
    functions: tuple[tuple[Any, str, Any], ...] = (
        (CudaInterface, "get_device_properties", torch.cuda.get_device_properties),
        (CudaInterface.Worker, "get_device_properties", torch.cuda.get_device_properties),
        (CudaInterface, "get_compute_capability", _capability(torch)),
        (torch.cuda, "get_rng_state", lambda *_: torch.zeros(_STATE_BYTES, dtype=torch.uint8)),
        (torch._C._dynamo.guards, "_empty_strided_cuda", _empty(torch)),
        (joint_graph, "lazy_init", _on_host(joint_graph.lazy_init)),
        (post_grad, "lazy_init", _on_host(post_grad.lazy_init)),
    )
    with ExitStack() as stack:
        for owner, name, function in _shared(torch.cuda, torch.accelerator):
            stack.enter_context(patch.object(owner, name, _another(function)))
        for owner, name, answer in answers:
            ours: Any = _always(answer)
            if isinstance(owner, type):
                ours = staticmethod(ours)
            stack.enter_context(patch.object(owner, name, ours, create=True))
        for owner, name, function in functions:
            ours = staticmethod(function) if isinstance(owner, type) else function
            stack.enter_context(patch.object(owner, name, ours))
        stack.enter_context(patch.object(torch.cuda, "_DeviceGuard", _Guard))
        stack.enter_context(patch.object(torch.version, "cuda", torch.version.cuda or _CUDA))
        stack.enter_context(patch.object(triton_heuristics.CachingAutotuner, "bench", _bench))
        templates = select_algorithm.AlgorithmSelectorCache
        stack.enter_context(patch.object(templates, "benchmark", _compared))
        stack.enter_context(torch._inductor.config.patch(_SETTINGS))
        stack.enter_context(torch._dynamo.config.patch(suppress_errors=True))
        # kernels are kept until Python ends, and were never on a GPU
        stack.enter_context(patch.object(CompiledKernel, "__del__", _always(None), create=True))
        try:
            yield
        finally:
            torch._dynamo.reset()
            codecache.PyCodeCache.cache_clear()
            gc.collect()


@contextmanager
def recording(target: str, record: Callable[[Launched], None], **options: Any) -> Iterator[None]:
    """Within it, Helion compiles; what it launches is recorded as Triton's."""
    with inductor_without_gpu():
        yield


@contextmanager
def compiling(compile_: Callable[..., Any]) -> Iterator[None]:
    """Within it, ``torch.compile`` is what it always is, ``compile_``."""
    import torch

    with ExitStack() as stack:
        active: list[None] = []

        def compiled(*args: Any, **options: Any) -> Any:
            if not active:
                active.append(stack.enter_context(inductor_without_gpu()))
            return compile_(*args, **options)

        stack.enter_context(torch.compiler.set_stance("default"))
        stack.enter_context(patch.object(torch, "compile", compiled))
        yield


def _shared(*owners: Any) -> Iterator[tuple[Any, str, Any]]:
    """Functions that stand in for several: Dynamo tells functions apart by what they are."""
    seen: set[int] = set()
    for owner in owners:
        for name, function in tuple(vars(owner).items()):
            if isinstance(function, FunctionType):
                if id(function) in seen:
                    yield owner, name, function
                seen.add(id(function))


def _another(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **options: function(*args, **options)


def _capability(torch: Any) -> Callable[..., int]:
    def capability(device: Any = None) -> int:
        major, minor = torch.cuda.get_device_capability(device)
        return int(10 * major + minor)

    return capability


def _empty(torch: Any) -> Callable[..., Any]:
    def empty(shape: Any, strides: Any, dtype: Any) -> Any:
        return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")

    return empty


def _on_host(register: Callable[..., None]) -> Callable[..., None]:
    """What registers patterns, by tracing them on tensors with storage."""

    def registered(device: Any = None) -> None:
        import torch

        with patch.object(torch.cuda, "is_available", _always(False)):
            register(torch.device("cpu"))

    return registered


def _bench(tuner: Any, launcher: Any, *args: Any, **options: Any) -> Any:
    """A configuration is launched once; all take equally long."""
    options.pop("with_profiler", None)
    return once(lambda: launcher(*args, stream=0, **options))


def _compared(templates: Any, choices: Iterable[Any], *_: Any, **__: Any) -> dict[Any, float]:
    """Templates, with what they take: the first is as good as any."""
    return dict.fromkeys(choices, 1.0)


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer


class _Guard:
    """The device to work on."""

    def __init__(self, *args: object) -> None:
        """There is one."""

    def __enter__(self) -> _Guard:
        return self

    def __exit__(self, *error: object) -> None:
        """It is kept."""
