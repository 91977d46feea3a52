"""What a thread reads that it has not made itself, the same in PTX and in SASS: parameters, special
registers, memory, and whether a wait is over at the first try.

Values are small numbers, so that loops end soon, and are drawn from a seed. A thread is alone in
its warp as far as votes and shuffles go, and nothing else writes memory: any values will do, as
long as both sides read the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from math import prod
from typing import Literal

from tilesim.arith.types import WIDTH
from tilesim.cubin.image import KernelInfo, KernelParameter
from tilesim.ptx.inline import Kernel
from tilesim.records import dataclass

#: beginning of the shared memory of a CTA that the system takes from sm_90 on
SHARED_AT = 1024
#: high word of generic addresses in shared memory
SHARED_WINDOW = 0x7F12
#: bits of an address in the shared memory of a cluster that are the place in that of a CTA
OFFSET = 0xFFFFFF

Space = Literal["shared", "global", "local"]

_SMALL = (1, 2, 3, 4, 6, 8, 64, 128, 192, 256, 320, 512)
_SMALLER = (1, 2, 3, 4, 8, 16, 32, 64, 96, 128)
#: from this seed on parameters are smaller, so that loops end sooner
SMALLER = 4
_TINY = (0, 1, 2, 3, 1, 0, 4, 7)
_M64 = (1 << 64) - 1


def drawn(*key: int) -> int:
    """64 bits that depend on all numbers of the key."""
    found = 0x243F6A8885A308D3
    for one in key:
        found = (found ^ one) * 0x9E3779B97F4A7C15 & _M64
        found ^= found >> 29
    found = found * 0xBF58476D1CE4E5B9 & _M64
    return found ^ found >> 32


@dataclass(frozen=True)
class Inputs:
    """What one thread reads; ``seed`` draws it. ``block`` and ``grid`` are sizes, ``tid`` and
    ``ctaid`` places in them, ``cluster`` the size of a cluster and ``rank`` the place in it."""

    parameters: tuple[KernelParameter, ...]
    seed: int
    tid: tuple[int, int, int]
    block: tuple[int, int, int]
    ctaid: tuple[int, int, int] = (0, 0, 0)
    grid: tuple[int, int, int] = (1, 1, 1)
    cluster: tuple[int, int, int] = (1, 1, 1)
    rank: int = 0

    @property
    def lane(self) -> int:
        """The place in the warp."""
        x, y, z = self.tid
        return (x + self.block[0] * (y + self.block[1] * z)) % 32

    def parameter(self, offset: int, nbytes: int) -> int:
        """Bytes of the parameters, from an offset on."""
        found = 0
        for at in range(offset & ~3, offset + nbytes, 4):
            found |= self._parameter_word(at) << 8 * (at - (offset & ~3))
        return found >> 8 * (offset & 3) & (1 << 8 * nbytes) - 1

    def _parameter_word(self, at: int) -> int:
        """Of a parameter of 8 bytes an address; of others small numbers."""
        one = next((p for p in self.parameters if p.offset <= at < p.offset + p.size), None)
        if one is not None and one.size == 8:
            if at != one.offset:
                return 0x700
            return drawn(self.seed, 1, one.offset) % 1024 << 20
        values = _SMALL if self.seed < SMALLER else _SMALLER
        return values[drawn(self.seed, 2, at) % len(values)]

    def memory(self, space: Space, word: int) -> int:
        """A word of memory that the thread has not written, by its address divided by 4; what the
        system keeps in shared memory is 0."""
        if space == "shared" and word < SHARED_AT // 4:
            return 0
        return _TINY[drawn(self.seed, 3 if space == "shared" else 4, word) % len(_TINY)]

    def tries(self, mbarrier: int, parity: int | None, waits: int) -> int:
        """How often a wait fails before it is over, if there were so many of it before."""
        return drawn(self.seed, 5, mbarrier, 2 if parity is None else parity, waits) % 4 % 3

    @property
    def named(self) -> Mapping[str, int | None]:
        """Special registers, as PTX names them without ``%``; what is not here is not known."""
        found: dict[str, int | None] = {
            "laneid": self.lane,
            "lanemask_eq": 1 << self.lane,
            "lanemask_lt": (1 << self.lane) - 1,
            "lanemask_le": (2 << self.lane) - 1,
            "lanemask_gt": 0xFFFFFFFF & -(2 << self.lane),
            "lanemask_ge": 0xFFFFFFFF & -(1 << self.lane),
            "cluster_ctarank": self.rank,
            "cluster_nctarank": self.cluster[0] * self.cluster[1] * self.cluster[2],
        }
        x, y, _ = self.cluster
        ranks = (self.rank % x, self.rank // x % y, self.rank // (x * y))
        for n, axis in enumerate("xyz"):
            found[f"tid.{axis}"] = self.tid[n]
            found[f"ntid.{axis}"] = self.block[n]
            found[f"ctaid.{axis}"] = self.ctaid[n]
            found[f"nctaid.{axis}"] = self.grid[n]
            found[f"cluster_ctaid.{axis}"] = ranks[n]
            found[f"cluster_nctaid.{axis}"] = self.cluster[n]
            found[f"clusterid.{axis}"] = self.ctaid[n] // self.cluster[n]
            found[f"nclusterid.{axis}"] = self.grid[n] // self.cluster[n]
        return found


class End(Enum):
    """How the execution of a thread ends: it exits, it traps, or it is not known how it goes on."""

    EXIT = "exit"
    TRAP = "trap"
    UNKNOWN = "unknown"


class Memory:
    """The memory that a thread sees: what it has written itself, else what `Inputs` says. None is
    not known."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._words: dict[tuple[str, int], int | None] = {}
        #: spaces in which something was written at a place that is not known
        self._lost: set[str] = set()

    def load(self, address: int | None, nbytes: int, space: Space) -> int | None:
        """So many bytes, up to 8, aligned to their number or to 4."""
        if address is None or (space in self._lost and not _is_of_system(address, space)):
            return None
        found = 0
        for at in range(address & ~3, address + nbytes, 4):
            word = self._words.get((space, at), -1)
            if word == -1:  # local memory has nothing in it that was not written
                word = None if space == "local" else self._inputs.memory(space, at >> 2)
            if word is None:
                return None
            found |= word << 8 * (at - (address & ~3))
        return found >> 8 * (address & 3) & (1 << 8 * nbytes) - 1

    def store(self, address: int | None, nbytes: int, value: int | None, space: Space) -> None:
        """Writes so many bytes."""
        if address is None:
            self._lost.add(space)
            return
        for at in range(address & ~3, address + nbytes, 4):
            if value is None:
                self._words[space, at] = None
                continue
            first, last = max(at, address), min(at + 4, address + nbytes)
            mask = (1 << 8 * (last - first)) - 1
            part = value >> 8 * (first - address) & mask
            old = 0 if last - first == 4 else self.load(at, 4, space)
            shift = 8 * (first - at)
            new = None if old is None else old & ~(mask << shift) | part << shift
            self._words[space, at] = new


def _is_of_system(address: int, space: Space) -> bool:
    return space == "shared" and address < SHARED_AT


class Waits:
    """Which waits are over, by how often each was tried.

    ``done`` are those that were over: mbarrier, parity, and the place of the try. A wait for what
    is not known is over at once, and makes ``known`` false.
    """

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        #: by mbarrier and parity, how many waits there were, and how often the last one has failed
        self._tries: dict[tuple[int, int | None], tuple[int, int]] = {}
        self.done: list[tuple[int, int | None, int]] = []
        self.known = True

    def over(self, mbarrier: int | None, parity: int | None, place: int) -> bool:
        """Whether a try at a place is the last one."""
        if mbarrier is None:
            self.known = False
            return True
        waits, failed = self._tries.get((mbarrier, parity), (0, 0))
        if failed < self._inputs.tries(mbarrier, parity, waits):
            self._tries[mbarrier, parity] = waits, failed + 1
            return False
        self._tries[mbarrier, parity] = waits + 1, 0
        self.done.append((mbarrier, parity, place))
        return True


def block_of(info: KernelInfo) -> tuple[int, int, int]:
    """The size of a block that a kernel is launched with: as it says, else 128 threads."""
    return info.block or info.most_threads or (128, 1, 1)


def parameters_of(kernel: Kernel, info: KernelInfo) -> tuple[KernelParameter, ...]:
    """The parameters of a kernel: as the cubin says, else one behind the other, aligned."""
    if info.parameters:
        return info.parameters
    found: list[KernelParameter] = []
    end = 0
    for ordinal, one in enumerate(kernel.entry.params):
        nbytes = max(8, WIDTH[one.type]) // 8 * one.vector
        offset = -(-end // max(nbytes, one.align)) * max(nbytes, one.align)
        end = offset + nbytes * prod(size or 1 for size in one.shape)
        found.append(KernelParameter(ordinal, offset, end - offset))
    return tuple(found)
