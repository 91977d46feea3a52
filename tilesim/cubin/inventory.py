"""The inventory of a kernel's machine code: its barriers, what works on them, what it needs.

It is no proof. It says what stands in the code, and compares numbers that stand there: what an
mbarrier expects with what arrives, bytes that are expected with bytes that are copied, the counts
of a named barrier, registers that are asked for. An `Observation` is no verdict: what cannot be
told is said to be so.
"""

from __future__ import annotations

from typing import Literal

from tilesim.cubin.image import KernelParameter, Triple
from tilesim.records import dataclass

#: what two numbers of a kernel say of each other
Answer = Literal["consistent", "cannot be told", "differs"]

#: what an instruction does with an mbarrier
Kind = Literal[
    "init", "inval", "wait", "arrive", "arrive n", "arrive.expect_tx", "expect_tx", "complete_tx",
    "arrive_drop", "arrive.noComplete", "cp.async.mbarrier.arrive",
    "cp.async.mbarrier.arrive.noinc", "tcgen05.commit", "bulk copy", "tensor copy", "st.async",
    "red.async", "try_cancel",
]  # fmt: skip


@dataclass(frozen=True)
class Observation:
    """What two numbers say of each other, and why, in a sentence."""

    answer: Answer
    why: str


@dataclass(frozen=True)
class Site:
    """An instruction that works on an mbarrier.

    ``pc`` counts bytes from the function's beginning. ``addresses``: bytes in the shared memory of
    a CTA, at least all those that it can name; None is not known. ``remote``: it may be the memory
    of another CTA of the cluster. ``amounts``: the values that its number can have: the count of an
    ``init``, the parity of a ``wait``, arrivals (of one thread), bytes of what expects, completes
    or copies; None is not known, as of a tensor copy, whose box is in the tensor map. ``warps``:
    those that can come to it; ``threads``: how many execute it, once each. None cannot be told.
    """

    pc: int
    instruction: str
    kind: Kind
    addresses: tuple[int, ...] | None
    remote: bool
    amounts: tuple[int, ...] | None
    warps: tuple[int, ...] | None
    threads: int | None


@dataclass(frozen=True)
class MbarrierRow:
    """Mbarriers that the same instructions work on: one, or the stages of a ring.

    ``base`` is the address of the first one, in bytes of the CTA's shared memory, ``stride`` the
    bytes from one to the next (0 of one alone), ``stages`` how many. ``counts``: the arrivals that
    a phase expects, by the word that initialises it; None is not known. ``sites`` are all
    instructions that may work on it, in the order of the code.
    """

    base: int
    stride: int
    stages: int
    counts: tuple[int, ...] | None
    sites: tuple[Site, ...]
    arrivals: Observation
    bytes: Observation

    def of(self, *kinds: Kind) -> tuple[Site, ...]:
        """Its instructions of some kinds."""
        return tuple(site for site in self.sites if site.kind in kinds)


@dataclass(frozen=True)
class NamedSite:
    """An instruction that comes to a named barrier: ``sync``, ``arrive`` (does not wait) or
    ``red``. ``number``, ``threads`` (the count that it names) are None where they cannot be told;
    ``whole``: it is of all threads of the CTA, and names no count. ``warps`` can come to it."""

    pc: int
    instruction: str
    kind: Literal["sync", "arrive", "red"]
    numbers: tuple[int, ...] | None
    threads: tuple[int, ...] | None
    whole: bool
    warps: tuple[int, ...] | None


@dataclass(frozen=True)
class NamedBarrierRow:
    """A named barrier, by its number, and what comes to it."""

    number: int
    sites: tuple[NamedSite, ...]
    counts: Observation


@dataclass(frozen=True)
class RegisterSite:
    """A ``setmaxnreg``: the registers that a thread has behind it; ``warps`` can come to it."""

    pc: int
    kind: Literal["inc", "dec"]
    registers: int | None
    warps: tuple[int, ...] | None


@dataclass(frozen=True)
class Inventory:
    """What stands in the machine code of a kernel; no proof of anything.

    ``block`` is the size that is required (``.reqntid``), ``most_threads`` the largest
    (``.maxntid``), taken for the size of the block where that is not required. ``parameters`` have
    ``parameter_bytes`` together. ``static_shared`` counts what the system takes too (the first
    1024 bytes from sm_90 on), ``least_dynamic_shared`` is what a launch must give in addition for
    the addresses that are known. ``unplaced``: instructions on mbarriers whose address is not
    known, or that belong to no row. ``unnumbered``: of named barriers whose number is not known.
    ``cluster_arrives``, ``cluster_waits``: places of the instructions of the cluster's barrier;
    ``grid_waits`` and ``grid_triggers`` of ``griddepcontrol.wait`` and ``.launch_dependents``.
    ``unknown``: why some of it is not known, each a sentence.
    """

    kernel: str
    arch: str
    block: Triple | None
    most_threads: Triple | None
    cluster: Triple | None
    registers: int | None
    parameters: tuple[KernelParameter, ...]
    parameter_bytes: int
    static_shared: int
    least_dynamic_shared: int
    mbarriers: tuple[MbarrierRow, ...]
    unplaced: tuple[Site, ...]
    named_barriers: tuple[NamedBarrierRow, ...]
    unnumbered: tuple[NamedSite, ...]
    register_sites: tuple[RegisterSite, ...]
    register_pool: Observation | None
    cluster_arrives: tuple[int, ...]
    cluster_waits: tuple[int, ...]
    try_cancels: tuple[int, ...]
    grid_waits: tuple[int, ...]
    grid_triggers: tuple[int, ...]
    unknown: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether each instruction on a barrier is in a row, and all control flow is known."""
        return not (self.unplaced or self.unnumbered or self.unknown)

    @property
    def observations(self) -> tuple[Observation, ...]:
        """All comparisons, in the order of the rows."""
        of_mbarriers = [one for row in self.mbarriers for one in (row.arrivals, row.bytes)]
        of_named = [row.counts for row in self.named_barriers]
        pool = () if self.register_pool is None else (self.register_pool,)
        return (*of_mbarriers, *of_named, *pool)
