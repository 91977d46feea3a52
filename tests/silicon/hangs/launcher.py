"""Launches kernels and waits for their end: ``python -m tests.silicon.hangs.launcher PLAN``.

The plan is a JSON file: ``image``, a cubin or PTX, and ``launches``, launch descriptions (docs:
launch descriptions of `tilesim check`). Parameters of one name are one buffer. Each launch has a
stream of its own, one that is ``dependent`` that of the launch before it.

It prints ``launched`` when all are under way, and ``ended`` when they have ended. The driver is
called through `ctypes`: nothing else of CUDA is needed. A process that hangs has to be killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from ctypes import byref, c_char, c_int, c_uint, c_uint32, c_uint64, c_void_p
from functools import partial
from pathlib import Path
from typing import Any

from tilesim.errors import TilesimError
from tilesim.ptx.description import read
from tilesim.ptx.launch import (
    Address,
    Contents,
    Launch,
    Map,
    Parameter,
    Pointer,
    Scalar,
    bytes_of,
)

#: bytes of a buffer of which the size is not known, and that of a tensor map and its alignment
_UNKNOWN, _MAP, _ALIGN = 1 << 20, 128, 64
_BLOCKING_SYNC, _NON_BLOCKING = 4, 1
_LARGE_SHARED, _LARGE_CLUSTER = 8, 14
_COOPERATIVE, _CLUSTER, _DEPENDENT = 2, 4, 6
#: types of elements, swizzles and interleaves in the driver's order
_TYPES = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32",
    "tf32.ftz",
)  # fmt: skip
_SWIZZLES, _INTERLEAVES = (0, 32, 64, 128), (0, 16, 32)


class _Attribute(ctypes.Structure):
    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint), ("stream", c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)), ("count", c_uint),
    )  # fmt: skip


class LaunchFailed(TilesimError):
    """The driver has refused a call, or a kernel has ended in an error."""


class Device:
    """The first GPU, through the driver."""

    def __init__(self) -> None:
        # code that is loaded by its first launch would wait for a kernel that hangs
        os.environ["CUDA_MODULE_LOADING"] = "EAGER"
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", c_uint(0))
        device, context = c_int(), c_void_p()
        self.call("cuDeviceGet", byref(device), c_int(0))
        # a process that waits leaves its core to others
        self.call("cuDevicePrimaryCtxSetFlags_v2", device, c_uint(_BLOCKING_SYNC))
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self._buffers: dict[str, tuple[int, int]] = {}
        self._kept: list[Any] = []

    def call(self, name: str, *arguments: Any) -> None:
        """Calls the driver.

        Raises:
            LaunchFailed: it has an error.
        """
        status = getattr(self._library, name)(*arguments)
        if status:
            raise LaunchFailed(f"{name}: error {status}")

    def load(self, image: bytes) -> c_void_p:
        """A module of a cubin, or of PTX."""
        module, data = c_void_p(), ctypes.create_string_buffer(image)
        self._kept.append(data)
        self.call("cuModuleLoadData", byref(module), data)
        return module

    def made(
        self, module: c_void_p, launch: Launch, stream: c_void_p
    ) -> Callable[[], None]:  # fmt: skip
        """A launch that is ready to be started: nothing else that it needs waits for a kernel."""
        function = c_void_p()
        self.call("cuModuleGetFunction", byref(function), module, launch.entry.encode())
        if launch.dynamic_shared:
            self.call(
                "cuFuncSetAttribute", function, c_int(_LARGE_SHARED), c_int(launch.dynamic_shared)
            )
        if launch.cluster_size > 8:
            self.call("cuFuncSetAttribute", function, c_int(_LARGE_CLUSTER), c_int(1))
        attributes = _attributes(launch)
        listed = (_Attribute * max(1, len(attributes)))(*attributes)
        config = _Config(
            (c_uint * 3)(*launch.grid), (c_uint * 3)(*launch.block), launch.dynamic_shared,
            stream, listed, len(attributes),
        )  # fmt: skip
        for buffer in launch.buffers:
            self.buffer(buffer)
        values = [self._parameter(p) for p in launch.params]
        pointers = (c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
        self._kept += [values, pointers]
        self._kept += [listed, config]
        return partial(self.call, "cuLaunchKernelEx", byref(config), function, pointers, None)

    def stream(self) -> c_void_p:
        """A stream that waits for no other."""
        stream = c_void_p()
        self.call("cuStreamCreate", byref(stream), c_uint(_NON_BLOCKING))
        return stream

    def wait(self) -> None:
        """Waits until all has ended."""
        self.call("cuCtxSynchronize")

    def buffer(self, pointer: Pointer) -> int:
        """The address of a buffer: new memory of zeros and what it begins with, or one that is
        there already."""
        if pointer.bytes == 0:
            return 0
        if pointer.name not in self._buffers:
            size = pointer.bytes or _UNKNOWN
            address = c_uint64()
            self.call("cuMemAlloc_v2", byref(address), ctypes.c_size_t(size))
            self.call("cuMemsetD8_v2", address, ctypes.c_ubyte(0), ctypes.c_size_t(size))
            self._buffers[pointer.name] = address.value, size
            if pointer.contents is not None:
                data = self._contents(pointer.contents)
                self.call(
                    "cuMemcpyHtoD_v2", address, ctypes.create_string_buffer(data, len(data)),
                    ctypes.c_size_t(len(data)),
                )  # fmt: skip
        return self._buffers[pointer.name][0]

    def _contents(self, contents: Contents) -> bytes:
        parts = []
        for value in contents.values:
            if isinstance(value, Address):
                place = self._buffers[value.name][0] + value.offset
                parts.append(place.to_bytes(8, "little"))
            else:
                parts.append(bytes_of(contents.type, value))
        return b"".join(parts)

    def _parameter(self, parameter: Parameter) -> Any:
        """The memory of a parameter, which a tensor map wants aligned."""
        data = self._bytes(parameter)
        room = (c_char * (len(data) + _ALIGN))()
        self._kept.append(room)
        start = -ctypes.addressof(room) % _ALIGN
        placed = (c_char * len(data)).from_buffer(room, start)
        ctypes.memmove(placed, data, len(data))
        return placed

    def _bytes(self, parameter: Parameter) -> bytes:
        match parameter:
            case Pointer():
                return (self.buffer(parameter) + parameter.offset).to_bytes(8, "little")
            case Scalar(type=kind, value=value):
                return bytes_of(kind, value or 0)
            case Map():
                return self._map(parameter)
        data = bytearray(parameter.data.ljust(parameter.size, b"\0"))
        for field in parameter.fields:
            part = self._bytes(field.value)
            data[field.offset : field.offset + len(part)] = part
        return bytes(data)

    def _map(self, value: Map) -> bytes:
        """The descriptor of a tensor map.

        Raises:
            LaunchFailed: the driver refuses it, or its elements have no name here.
        """
        if value.type not in _TYPES or value.im2col is not None or value.atoms != 16:
            raise LaunchFailed(f"{value.name}: maps of this kind are not launched here")
        rank = len(value.shape)
        needed = value.offset + (value.strides[-1] * value.shape[-1] if value.strides else 0)
        if not value.strides:
            needed += value.shape[0] * value.bits // 8
        address = self.buffer(Pointer(value.name, needed)) + value.offset
        room = (c_char * (_MAP + _ALIGN))()
        place = ctypes.addressof(room) + -ctypes.addressof(room) % _ALIGN
        self.call(
            "cuTensorMapEncodeTiled", c_void_p(place), c_int(_TYPES.index(value.type)),
            c_uint32(rank), c_void_p(address), (c_uint64 * rank)(*value.shape),
            (c_uint64 * rank)(*value.strides), (c_uint32 * rank)(*value.box),
            (c_uint32 * rank)(*value.steps), c_int(_INTERLEAVES.index(value.interleave)),
            c_int(_SWIZZLES.index(value.swizzle)), c_int(2), c_int(value.fill == "nan"),
        )  # fmt: skip
        return ctypes.string_at(place, _MAP)


def _attributes(launch: Launch) -> list[_Attribute]:
    found = []
    if launch.cooperative:
        found.append(_Attribute(_COOPERATIVE, 0, (c_uint * 16)(1)))
    if launch.cluster_size > 1:
        found.append(_Attribute(_CLUSTER, 0, (c_uint * 16)(*launch.cluster)))
    if launch.dependent:
        found.append(_Attribute(_DEPENDENT, 0, (c_uint * 16)(1)))
    return found


def main(plan: Path) -> int:
    """Runs a plan; 0 if its kernels have ended, 1 if they ended in an error."""
    document = json.loads(plan.read_text())
    launches = [read(one) for one in document["launches"]]
    try:
        device = Device()
        module = device.load((plan.parent / document["image"]).read_bytes())
        stream, ready = c_void_p(), []
        for launch in launches:
            stream = stream if launch.dependent and stream else device.stream()
            ready.append(device.made(module, launch, stream))
        # memsets and copies of pageable memory may not have ended, and the streams do not wait
        device.wait()
        for start in ready:
            start()
        print("launched", flush=True)
        device.wait()
    except LaunchFailed as error:
        print(f"failed: {error}", flush=True)
        return 1
    print("ended", flush=True)
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)  # what is left of a context is the driver's
