"""The CUDA driver through ``cuda.bindings``: one GPU, memory, modules, tensor maps, launches.

Nothing here is imported until a kernel is to run, and the driver library is probed first: on a
machine without one, cuda.core may wait for ever on a lock instead of failing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.gpu.compile import package
from tilesim.gpu.errors import DeviceError
from tilesim.ir.declarations import TensorMap
from tilesim.ir.tensormap import packing_of
from tilesim.records import dataclass

#: what a tensor map calls an element type; types TMA does not know travel as raw bits
_MAP_TYPE = {
    "u8": "UINT8", "s8": "UINT8", "e4m3": "UINT8", "e5m2": "UINT8", "pred": "UINT8",
    "u16": "UINT16", "s16": "UINT16", "f16": "FLOAT16", "bf16": "BFLOAT16",
    "u32": "UINT32", "s32": "INT32", "f32": "FLOAT32", "tf32": "FLOAT32",
    "u64": "UINT64", "s64": "INT64", "f64": "FLOAT64",
}  # fmt: skip
_MAP_SWIZZLE = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
#: a descriptor lies on a 64-byte boundary and has 128 bytes
_MAP_BYTES, _MAP_ALIGN = 128, 64
_NOT_READY = "CUDA_ERROR_NOT_READY"


@dataclass(frozen=True)
class DeviceInfo:
    """What is known about the GPU."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    driver: str

    @property
    def arch(self) -> str:
        """The architecture as in ``sm_90``."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


def probe() -> None:
    """Raises `DeviceError` unless the driver library can be loaded."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(
            "there is no NVIDIA driver here (libcuda.so.1 cannot be loaded): run on a machine "
            "with a GPU and its driver; checking and compiling need neither"
        ) from error


class Gpu:
    """The primary context of one GPU, made current for the calling thread."""

    def __init__(self, ordinal: int = 0) -> None:
        probe()
        self._d = package("cuda.bindings.driver")
        self._call("cuInit", 0)
        count = self._call("cuDeviceGetCount")
        if not 0 <= ordinal < count:
            raise DeviceError(f"there is no GPU {ordinal}: the driver finds {count}")
        self.device = self._call("cuDeviceGet", ordinal)
        self.context = self._call("cuDevicePrimaryCtxRetain", self.device)
        self._call("cuCtxSetCurrent", self.context)
        self.info = self._describe()

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *values = getattr(self._d, name)(*arguments)
        if status != self._d.CUresult.CUDA_SUCCESS:
            raise DeviceError(f"{name}: {status.name}")
        return values[0] if len(values) == 1 else tuple(values)

    def _attribute(self, name: str) -> int:
        attribute = getattr(self._d.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call("cuDeviceGetAttribute", attribute, self.device))

    def _describe(self) -> DeviceInfo:
        name = self._call("cuDeviceGetName", 128, self.device)
        version = int(self._call("cuDriverGetVersion"))
        capability = (
            self._attribute("COMPUTE_CAPABILITY_MAJOR"),
            self._attribute("COMPUTE_CAPABILITY_MINOR"),
        )
        return DeviceInfo(
            name.split(b"\0")[0].decode(), capability, self._attribute("MULTIPROCESSOR_COUNT"),
            f"{version // 1000}.{version % 1000 // 10}",
        )  # fmt: skip

    def require(self, arch: str) -> None:
        """Raises `DeviceError` unless code for ``arch`` runs on this GPU."""
        major, minor = self.info.capability
        number, suffix = arch[3:].rstrip("af"), arch[-1]
        wanted = (int(number[:-1]), int(number[-1]))
        fits = {
            "a": wanted == (major, minor),
            "f": wanted[0] == major and wanted[1] <= minor,
        }.get(suffix, wanted[0] == major and wanted[1] <= minor)
        if not fits:
            raise DeviceError(
                f"the kernel is compiled for {arch}, the GPU ({self.info.name}) is "
                f"{self.info.arch}: run on a matching GPU or change the kernel's target"
            )

    # ------------------------------------------------------------------ memory

    def allocate(self, nbytes: int) -> int:
        """Address of new device memory."""
        return int(self._call("cuMemAlloc", nbytes))

    def free(self, address: int) -> None:
        """Releases device memory."""
        self._call("cuMemFree", address)

    def upload(self, address: int, data: NDArray[np.uint8]) -> None:
        """Copies bytes to the device."""
        self._call("cuMemcpyHtoD", address, data.ctypes.data, data.nbytes)

    def download(self, address: int, data: NDArray[np.uint8]) -> None:
        """Copies bytes from the device."""
        self._call("cuMemcpyDtoH", data.ctypes.data, address, data.nbytes)

    def pinned(self, nbytes: int) -> tuple[NDArray[np.uint8], int]:
        """Host memory that kernels can write, and its device address; survives a trap."""
        flags = self._d.CU_MEMHOSTALLOC_DEVICEMAP | self._d.CU_MEMHOSTALLOC_PORTABLE
        host = int(self._call("cuMemHostAlloc", nbytes, flags))
        device = int(self._call("cuMemHostGetDevicePointer", host, 0))
        array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(host))
        array[:] = 0
        return array, device

    def free_pinned(self, data: NDArray[np.uint8]) -> None:
        """Releases what `pinned` returned."""
        self._call("cuMemFreeHost", data.ctypes.data)

    # ------------------------------------------------------------------ kernels

    def load(self, cubin: bytes, entry: str, smem_bytes: int) -> Any:
        """The kernel of a cubin, allowed to use that much dynamic shared memory."""
        module = self._call("cuModuleLoadData", np.frombuffer(cubin, dtype=np.uint8).ctypes.data)
        function = self._call("cuModuleGetFunction", module, entry.encode())
        attribute = self._d.CUfunction_attribute
        self._call(
            "cuFuncSetAttribute", function,
            attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, smem_bytes,
        )  # fmt: skip
        return function

    def allow_large_cluster(self, function: Any) -> None:
        """Lets a kernel use clusters of more than eight CTAs."""
        attribute = self._d.CUfunction_attribute
        self._call(
            "cuFuncSetAttribute", function,
            attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1,
        )  # fmt: skip

    def tensor_map(self, tensor_map: TensorMap, address: int) -> NDArray[np.uint64]:
        """The 128-byte descriptor of a tensor map over the tensor at ``address``."""
        tensor = tensor_map.tensor
        rank = len(tensor.shape)
        packing = packing_of(tensor_map)
        kind = _MAP_TYPE[tensor.dtype.name] if packing is None else packing.kind
        elements = (*tensor.shape[:-1], tensor.shape[-1] * 8 // tensor_map.element_bits)
        counts = tensor.shape if packing is None else elements
        dims = (ctypes.c_uint64 * rank)(*reversed(counts))
        strides = (ctypes.c_uint64 * rank)(*tuple(reversed(tensor.byte_strides))[1:])
        steps = tensor_map.element_strides or (1,) * rank
        element_strides = (ctypes.c_uint32 * rank)(*reversed(steps))
        room = np.zeros(_MAP_BYTES + _MAP_ALIGN, dtype=np.uint8)
        start = -room.ctypes.data % _MAP_ALIGN
        target = room[start : start + _MAP_BYTES]
        name, shape, layout = self._encoding(tensor_map)
        # cuda.bindings does not promise the descriptor's alignment, so this one goes to the library
        status = getattr(ctypes.CDLL("libcuda.so.1"), name)(
            ctypes.c_void_p(target.ctypes.data), self._map_type(kind),
            ctypes.c_uint32(rank), ctypes.c_void_p(address), dims, strides, *shape,
            element_strides, ctypes.c_int(0), *layout, self._swizzle(tensor_map.swizzle),
            self._promotion(), ctypes.c_int(int(tensor_map.fill == "nan")),
        )  # fmt: skip
        if status:
            raise DeviceError(
                f"{name}: {self._d.CUresult(status).name} for {tensor_map.name}: "
                f"{tensor.dtype} {tensor.shape}, strides {tensor.byte_strides} bytes, box "
                f"{tensor_map.box}, swizzle {tensor_map.swizzle}, address {address:#x}"
            )
        return target.view(np.uint64).copy()

    def _encoding(self, tensor_map: TensorMap) -> tuple[str, list[Any], list[Any]]:
        """The function that encodes a map, its arguments that say what a copy takes, and those
        between interleave and swizzle."""
        if tensor_map.lower is None or tensor_map.upper is None:
            box = (ctypes.c_uint32 * len(tensor_map.box))(*reversed(tensor_map.box))
            return "cuTensorMapEncodeTiled", [box], []
        corners: list[Any] = [
            (ctypes.c_int * len(corner))(*reversed(corner))
            for corner in (tensor_map.lower, tensor_map.upper)
        ]
        pixels, channels = map(ctypes.c_uint32, tensor_map.box)
        if tensor_map.wide is None:
            return "cuTensorMapEncodeIm2col", [*corners, channels, pixels], []
        first, last = (ctypes.c_int(corner[0]) for corner in corners)
        name = f"CU_TENSOR_MAP_IM2COL_WIDE_MODE_{tensor_map.wide.upper().replace('::', '')}"
        mode = ctypes.c_int(int(getattr(self._d.CUtensorMapIm2ColWideMode, name)))
        return "cuTensorMapEncodeIm2colWide", [first, last, channels, pixels], [mode]

    def _map_type(self, kind: str) -> ctypes.c_int:
        name = f"CU_TENSOR_MAP_DATA_TYPE_{kind}"
        return ctypes.c_int(int(getattr(self._d.CUtensorMapDataType, name)))

    def _swizzle(self, swizzle: int) -> ctypes.c_int:
        name = f"CU_TENSOR_MAP_SWIZZLE_{_MAP_SWIZZLE[swizzle]}"
        return ctypes.c_int(int(getattr(self._d.CUtensorMapSwizzle, name)))

    def _promotion(self) -> ctypes.c_int:
        promotion = self._d.CUtensorMapL2promotion
        return ctypes.c_int(int(promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B))

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: int,
        smem_bytes: int,
        arguments: Sequence[NDArray[Any]],
        stream: int = 0,
        *,
        cooperative: bool = False,
    ) -> None:
        """Starts a kernel; ``grid`` counts CTAs, each argument is the memory of one parameter."""
        pointers = np.array([a.ctypes.data for a in arguments], dtype=np.uint64)
        if cooperative:
            self._call(
                "cuLaunchCooperativeKernel", function, *grid, block, 1, 1, smem_bytes, stream,
                pointers.ctypes.data,
            )  # fmt: skip
            return
        self._call(
            "cuLaunchKernel", function, *grid, block, 1, 1, smem_bytes, stream,
            pointers.ctypes.data, 0,
        )  # fmt: skip

    def poll(self, stream: int = 0) -> str:
        """State of a stream: ``done``, ``running``, or the name of the error that ended it."""
        (status,) = self._d.cuStreamQuery(stream)
        if status == self._d.CUresult.CUDA_SUCCESS:
            return "done"
        return "running" if status.name == _NOT_READY else str(status.name)

    def synchronize(self, stream: int = 0) -> None:
        """Waits for a stream."""
        self._call("cuStreamSynchronize", stream)
