"""What each warp of a dump waits for, from the place at which it stands.

A wait is read from the machine code and the registers of the dump; the PTX is not needed. Each
statement has its evidence, and says whether it is certain: a warp that has issued ``BAR.SYNC``
stands up to four instructions behind it, as does one that has just passed it.
"""

from __future__ import annotations

from tilesim.autopsy.core_dump import Cta
from tilesim.cubin.sass import Instruction
from tilesim.records import dataclass, field
from tilesim.wording import numbered


@dataclass(frozen=True)
class Standing:
    """Where lanes stand and how that is known; each wait is one.

    ``instruction`` is the one that waits, or at which they stand if they are not known to wait;
    None outside of the kernel's code. ``certain``: the place and the registers admit nothing else.
    ``evidence`` says what was read, in words. ``instead``: what else it may wait for.
    """

    instruction: Instruction | None
    certain: bool
    evidence: str
    instead: tuple[Wait, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class MbarrierWait(Standing):
    """Waits for a phase of an mbarrier to complete.

    ``address`` counts bytes in the shared memory of its owner, ``rank`` is the owner's place in the
    cluster (None: the waiting CTA's own). ``parity`` is that of the phase asked for. None where a
    register that names it was overwritten, or not dumped. A wait with a token has the parity of
    the token's phase; machine code does not tell the two forms apart.
    """

    address: int | None
    rank: int | None
    parity: int | None

    def __str__(self) -> str:
        which = "an mbarrier that cannot be read" if self.address is None else f"{self.name}"
        parity = "" if self.parity is None else f", parity {self.parity}"
        return f"waits for {which}{parity}"

    @property
    def name(self) -> str:
        """``mbarrier 0xc08``, with the owner's rank if it is another CTA."""
        where = "" if self.rank is None else f" of the cluster's CTA {self.rank}"
        return f"mbarrier {self.address or 0:#x}{where}"


@dataclass(frozen=True)
class NamedBarrierWait(Standing):
    """Waits for a named barrier of its CTA (``bar.sync``, ``bar.red``, ``barrier.cta``).

    ``id`` and ``threads`` are None where a register names them, which is overwritten by the time;
    ``whole`` is a barrier of all threads of the CTA, which has no count. ``issued``: the warp has
    come to it; otherwise it is its next instruction.
    """

    id: int | None
    threads: int | None
    whole: bool
    issued: bool

    def __str__(self) -> str:
        which = "a named barrier" if self.id is None else f"named barrier {self.id}"
        count = f" of {self.threads} threads" if self.threads is not None else ""
        return f"waits for {which}{' of the whole CTA' if self.whole else count}"


@dataclass(frozen=True)
class ClusterBarrierWait(Standing):
    """Waits for the barrier of its cluster."""

    def __str__(self) -> str:
        return "waits for the barrier of its cluster"


@dataclass(frozen=True)
class WarpWait(Standing):
    """Waits for other lanes of its warp; both are masks.

    ``expected`` are all lanes that the instruction waits for, ``missing`` those of them that stand
    elsewhere; None if the register with the mask was not dumped.
    """

    expected: int | None
    missing: int | None

    def __str__(self) -> str:
        if not self.missing:
            return "waits for other lanes of its warp"
        return f"waits for {numbered('lane', lanes_of(self.missing))} of its warp"


@dataclass(frozen=True)
class Poll(Standing):
    """Reads a word again and again until it has another value.

    ``space`` is ``shared``, ``global`` or ``generic``; ``address`` counts bytes in the CTA's shared
    memory or is global; ``rank`` as in `MbarrierWait`. ``value`` is what the dump holds there, of
    ``width`` bytes. ``acquire``: the load is followed by what makes it one.
    """

    space: str
    address: int | None
    rank: int | None
    width: int
    value: int | None
    acquire: bool

    def __str__(self) -> str:
        which = "a word that cannot be read" if self.address is None else f"{self.name}"
        holds = "" if self.value is None else f", which holds {self.value:#x}"
        return f"polls {which}{holds}"

    @property
    def name(self) -> str:
        """``the global word 0x7f0000000000``."""
        where = "" if self.rank is None else f" of the cluster's CTA {self.rank}"
        return f"the {self.space} word {self.address or 0:#x}{where}"


@dataclass(frozen=True)
class Sleep(Standing):
    """Stands at ``NANOSLEEP``, and what it sleeps for is not known."""

    def __str__(self) -> str:
        return "sleeps"


@dataclass(frozen=True)
class RegisterPoolWait(Standing):
    """Waits for registers (``setmaxnreg.inc``)."""

    def __str__(self) -> str:
        return "waits for registers of its CTA's pool"


@dataclass(frozen=True)
class TensorAllocWait(Standing):
    """Waits for columns of tensor memory (``tcgen05.alloc``)."""

    def __str__(self) -> str:
        return "waits for columns of tensor memory"


@dataclass(frozen=True)
class GridDependencyWait(Standing):
    """Waits for the kernel before it (``griddepcontrol.wait``)."""

    def __str__(self) -> str:
        return "waits for the kernel before it"


@dataclass(frozen=True)
class AsyncGroupWait(Standing):
    """Waits for copies or matrix products that it has issued (``wait_group``)."""

    def __str__(self) -> str:
        return "waits for asynchronous operations of its own"


@dataclass(frozen=True)
class EndlessLoop(Standing):
    """Is in a loop that no path leaves, and waits for nothing in it."""

    def __str__(self) -> str:
        return "is in a loop without a way out"


@dataclass(frozen=True)
class Trap(Standing):
    """Has met an exception, or stands at a trap; ``exception``: the driver's number, 0 for none."""

    exception: int

    def __str__(self) -> str:
        return f"has met exception {self.exception}" if self.exception else "stands at a trap"


@dataclass(frozen=True)
class Running(Standing):
    """Is not known to wait."""

    def __str__(self) -> str:
        return "is not known to wait"


Wait = (
    MbarrierWait | NamedBarrierWait | ClusterBarrierWait | WarpWait | Poll | Sleep
    | RegisterPoolWait | TensorAllocWait | GridDependencyWait | AsyncGroupWait | EndlessLoop | Trap
    | Running
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Warps of a CTA, the same lanes of each, that stand at one place and wait for the same.

    ``pc`` counts bytes from the kernel's first instruction. Lanes of a warp that stand apart are
    in groups of their own.
    """

    cta: Cta
    warps: tuple[int, ...]
    lanes: int
    pc: int
    wait: Wait


def is_wait(wait: Wait) -> bool:
    """Whether it is one, and not a place at which no wait is known."""
    return not isinstance(wait, Running | Sleep | Trap)


def lanes_of(mask: int) -> list[int]:
    """The lanes whose bits a mask has."""
    return [n for n in range(32) if mask >> n & 1]
