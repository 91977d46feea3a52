"""What torch answers about a GPU that is not there: its properties, streams, events and graphs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch._subclasses import fake_tensor

from tilesim.recording import MULTIPROCESSORS
from tilesim.recording.left_out import Unavailable

_MEMORY_BYTES = 80 << 30
_STATE_BYTES = 16


def always(answer: Any) -> Callable[..., Any]:
    """A function of anything that answers this."""

    def function(*args: object, **options: object) -> Any:
        return answer

    return function


class Properties(SimpleNamespace):
    """What ``torch.cuda.get_device_properties`` gives."""

    def __init__(self, target: str) -> None:
        super().__init__(
            name=f"tilesim {target}", major=int(target[3:-2]), minor=int(target[-2]),
            multi_processor_count=MULTIPROCESSORS[target], total_memory=_MEMORY_BYTES,
            L2_cache_size=50 << 20, warp_size=32, max_threads_per_block=1024,
            max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536,
            shared_memory_per_block=49152, shared_memory_per_block_optin=232448,
            shared_memory_per_multiprocessor=233472, is_integrated=0, is_multi_gpu_board=0,
            clock_rate=1980000, memory_clock_rate=2619000, memory_bus_width=5120,
            pci_bus_id=0, pci_device_id=0, pci_domain_id=0, gcnArchName="", uuid="0" * 32,
        )  # fmt: skip


class Event:
    """An event: nothing runs, all has happened, and it took a millisecond."""

    def __init__(self, *args: object, **options: object) -> None:
        self.cuda_event = 0
        self.device = torch.device("cuda", 0)

    def record(self, *args: object) -> None:
        """Nothing is waited for."""

    wait = synchronize = record
    query = always(True)
    elapsed_time = always(1.0)


class Stream:
    """A stream, which orders nothing: kernels are recorded when they are launched."""

    _numbers = count(1)
    _current: ClassVar[list[Stream]] = []

    def __init__(self, *args: object, priority: int = 0, **options: object) -> None:
        self.cuda_stream = self.stream_id = next(self._numbers)
        self.priority = priority
        self.device = torch.device("cuda", 0)
        self.device_index = 0
        self.device_type = 1

    def record_event(self, event: Any = None) -> Any:
        """An event of it."""
        return Event() if event is None else event

    def synchronize(self, *args: object) -> None:
        """Nothing is waited for."""

    wait_stream = wait_event = synchronize
    query, is_capturing = always(True), always(False)

    def __enter__(self) -> Stream:
        self._current.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._current.pop()


class Graph:
    """A CUDA graph: what is launched while it is made is recorded, replays are the same again."""

    def __init__(self, *args: object, **options: object) -> None:
        """There is nothing in it."""

    def replay(self, *args: object, **options: object) -> None:
        """Nothing is run."""

    capture_begin = capture_end = reset = instantiate = enable_debug_mode = debug_dump = replay
    register_generator_state = replay
    pool = always((0, 0))


class Generator(torch.Generator):
    """A generator of random numbers, on the host."""

    def __new__(cls, device: object = "cpu") -> Generator:
        """For any device."""
        made: Generator = super().__new__(cls, "cpu")
        return made


class Profile(torch.autograd.profiler.profile):
    """A profile of the host: there are no events of a GPU."""

    def __init__(self, *args: Any, use_device: object = None, **options: Any) -> None:
        super().__init__(
            *args, **{**options, "use_cuda": False} if "use_cuda" in options else options
        )


class _Anything:
    """A module of the driver, whose functions succeed and do nothing."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("__"):
            raise AttributeError(name)
        return always(0)


def answers(target: str) -> Mapping[Any, Mapping[str, Any]]:
    """By module or class of torch, what stands in for its functions and classes."""
    properties = Properties(target)
    default = Stream()
    default.cuda_stream = default.stream_id = 0
    Stream._current[:] = [default]

    def current(*args: object) -> Stream:
        return Stream._current[-1]

    def set_current(stream: Any) -> None:
        Stream._current[-1] = stream

    def on(stream: Any) -> AbstractContextManager[Any]:
        return nullcontext() if stream is None else stream

    def context(*args: object, **options: object) -> AbstractContextManager[None]:
        return nullcontext()

    def state(*args: object) -> Any:
        return torch.zeros(_STATE_BYTES, dtype=torch.uint8)

    def same(functions: Any, *args: object, **options: object) -> Any:
        return functions

    def made_ready() -> None:
        asked = sys._getframe(1).f_code.co_name
        raise Unavailable(f"torch.cuda.{asked} asks the driver", "there is no GPU here")

    nothing, zero = always(None), always(0)
    cuda: dict[str, Any] = {
        "_lazy_init": made_ready, "init": nothing, "is_available": always(True),
        "is_initialized": always(True), "device_count": always(1), "current_device": zero,
        "set_device": nothing, "synchronize": nothing, "ipc_collect": nothing,
        "get_device_capability": always((properties.major, properties.minor)),
        "get_device_properties": always(properties), "get_device_name": always(properties.name),
        "get_arch_list": always([target]), "is_bf16_supported": always(True),
        "is_tf32_supported": always(True), "can_device_access_peer": always(False),
        "empty_cache": nothing, "mem_get_info": always((_MEMORY_BYTES, _MEMORY_BYTES)),
        "memory_allocated": zero, "max_memory_allocated": zero, "memory_reserved": zero,
        "max_memory_reserved": zero, "memory_summary": always(""), "memory_snapshot": always([]),
        "memory_stats": always({}), "reset_peak_memory_stats": nothing,
        "reset_accumulated_memory_stats": nothing, "reset_max_memory_allocated": nothing,
        "reset_max_memory_cached": nothing, "set_per_process_memory_fraction": nothing,
        "get_allocator_backend": always("native"), "utilization": zero, "memory_usage": zero,
        "temperature": zero, "power_draw": zero, "clock_rate": zero,
        "manual_seed": nothing, "manual_seed_all": nothing, "seed": nothing, "seed_all": nothing,
        "initial_seed": zero, "get_rng_state": state, "set_rng_state": nothing,
        "get_rng_state_all": lambda: [state()], "set_rng_state_all": nothing,
        "get_sync_debug_mode": zero, "set_sync_debug_mode": nothing,
        "Stream": Stream, "ExternalStream": Stream, "Event": Event, "current_stream": current,
        "default_stream": always(default), "set_stream": set_current, "stream": on,
        "device": context, "device_of": context,
        "CUDAGraph": Graph, "graph": context, "make_graphed_callables": same,
        "graph_pool_handle": always((0, 0)), "is_current_stream_capturing": always(False),
        "cudart": _Anything, "check_error": nothing,
    }  # fmt: skip
    accelerator: dict[str, Any] = {
        "is_available": always(True), "device_count": always(1),
        "current_accelerator": always(torch.device("cuda")), "current_device_index": zero,
        "set_device_index": nothing, "current_stream": current, "set_stream": set_current,
        "synchronize": nothing,
    }  # fmt: skip
    return {
        torch.cuda: cuda, torch.cuda.nvtx: {"_nvtx": _Anything()},
        torch.cuda.profiler: {"start": nothing, "stop": nothing},
        torch.autograd.profiler: {"emit_nvtx": context, "profile": Profile},
        getattr(torch, "accelerator", None): accelerator,
        torch: {"Generator": Generator, "Stream": Stream, "Event": Event},
        torch.version: {"cuda": torch.version.cuda or "13.0"},
        # it makes a tensor with storage, for the engine that `autograd` stands in for
        fake_tensor: {"init_gpu_context": nothing},
        torch.Tensor: {
            "record_stream": nothing, "pin_memory": same, "share_memory_": same,
            "cuda": _numbered(torch.Tensor.cuda), "to": _numbered(torch.Tensor.to),
        },
        torch.nn.Module: {"to": _numbered(torch.nn.Module.to)},
    }  # fmt: skip


def _numbered(move: Callable[..., Any]) -> Callable[..., Any]:
    """A method that may be given the number of a GPU, which a torch without CUDA does not take."""

    def moved(tensor: Any, *args: Any, **options: Any) -> Any:
        return move(
            tensor, *map(_device, args), **{name: _device(v) for name, v in options.items()}
        )

    return moved


def _device(given: Any) -> Any:
    return torch.device("cuda", given) if type(given) is int else given
