"""The GPUs that programs are told they have: an H200, a B200 or a B300, by target."""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack_into

from tilesim.records import dataclass

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Device:
    """What differs between them."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory: int
    l2: int


DEVICES: Mapping[str, Device] = {
    "sm_90a": Device("NVIDIA H200", (9, 0), 132, 140 * _GIB, 50 * _MIB),
    "sm_100a": Device("NVIDIA B200", (10, 0), 148, 178 * _GIB, 126 * _MIB),
    "sm_103a": Device("NVIDIA B300", (10, 3), 160, 267 * _GIB, 126 * _MIB),
}
SHARED_PER_CTA, SHARED_PER_SM, SHARED_RESERVED = 227 * _KIB, 228 * _KIB, 1 * _KIB
SHARED_DEFAULT = 48 * _KIB
REGISTERS, THREADS, CTAS, CTA_THREADS = 65536, 2048, 32, 1024
#: registers per thread that a kernel is said to have where its PTX sets no limit
REGISTERS_USUAL = 128
#: the attribute that `TOTAL_MEMORY` stands for is none of CUDA's
TOTAL_MEMORY = (1 << 64) - 1

#: by number in ``CUdevice_attribute`` and ``cudaDeviceAttr``, what all have; missing ones are 0
_COMMON: Mapping[int, int] = {
    1: CTA_THREADS, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535, 8: SHARED_DEFAULT,
    9: 64 * _KIB, 10: 32, 11: 2**31 - 1, 12: REGISTERS, 13: 1980000, 14: 512, 15: 1, 19: 1,
    30: 512, 31: 1, 32: 1, 33: 1, 36: 2619000, 37: 5120, 39: THREADS, 40: 3, 41: 1, 51: 32, 78: 1,
    79: 1, 80: 1, 81: SHARED_PER_SM, 82: REGISTERS, 83: 1, 87: 2, 89: 1, 90: 1, 91: 1, 95: 1,
    97: SHARED_PER_CTA, 99: 1, 106: CTAS, 109: 128 * _MIB, 111: SHARED_RESERVED, 115: 1, 120: 1,
    127: 1, 129: 1,
}  # fmt: skip

#: fields of ``cudaDeviceProp``: format, offsets in CUDA 12 and 13, attribute
_FIELDS: tuple[tuple[str, int, int, int], ...] = (
    ("Q", 288, 288, TOTAL_MEMORY), ("Q", 296, 296, 8), ("i", 304, 304, 12), ("i", 308, 308, 10),
    ("Q", 312, 312, 11), ("i", 320, 320, 1), ("i", 324, 324, 2), ("i", 328, 328, 3),
    ("i", 332, 332, 4), ("i", 336, 336, 5), ("i", 340, 340, 6), ("i", 344, 344, 7),
    ("i", 348, -1, 13), ("Q", 352, 352, 9), ("i", 360, 360, 75), ("i", 364, 364, 76),
    ("Q", 368, 368, 14), ("i", 388, 384, 16), ("i", 400, 392, 19), ("i", 576, 560, 31),
    ("i", 600, 584, 40), ("i", 604, 588, 41), ("i", 608, -1, 36), ("i", 612, 592, 37),
    ("i", 616, 596, 38), ("i", 620, 600, 108), ("i", 624, 604, 39), ("i", 628, 608, 78),
    ("i", 632, 612, 79), ("i", 636, 616, 80), ("Q", 640, 624, 81), ("i", 648, 632, 82),
    ("i", 652, 636, 83), ("i", 676, 656, 89), ("i", 688, 668, 95), ("Q", 696, 672, 97),
    ("i", 712, 688, 106), ("i", 716, 692, 109), ("Q", 720, 696, 111), ("i", 728, 704, 99),
    ("i", 744, 720, 115), ("i", 772, 748, 120), ("i", 776, 752, 129),
)  # fmt: skip
_PROPERTIES_SIZE: Mapping[int, int] = {12: 1032, 13: 1008}


def attribute(target: str, number: int) -> int:
    """An attribute of the GPU for ``target``; 0 where it has no such thing."""
    device = DEVICES[target]
    own = {
        16: device.multiprocessors, 38: device.l2, 75: device.capability[0],
        76: device.capability[1], 108: device.l2 * 5 // 8, TOTAL_MEMORY: device.memory,
    }  # fmt: skip
    return own.get(number, _COMMON.get(number, 0))


def properties(target: str, version: int) -> bytes:
    """A ``cudaDeviceProp`` of CUDA 12 or 13."""
    made = bytearray(_PROPERTIES_SIZE[version])
    name = DEVICES[target].name.encode()
    made[: len(name)] = name
    for kind, in12, in13, number in _FIELDS:
        offset = in12 if version == 12 else in13
        if offset >= 0:
            pack_into(f"<{kind}", made, offset, attribute(target, number))
    return bytes(made)


def resident(threads: int, shared: int, registers: int) -> int:
    """CTAs of a kernel that a multiprocessor can hold, by what one of them takes; ``registers`` per
    thread, 0: not known."""
    if not 1 <= threads <= CTA_THREADS or shared > SHARED_PER_CTA:
        return 0
    warps = -(-threads // 32)
    found = min(CTAS, THREADS // (32 * warps), SHARED_PER_SM // (shared + SHARED_RESERVED))
    if registers:
        found = min(found, REGISTERS // (-(-registers // 8) * 8 * 32 * warps))
    return found
