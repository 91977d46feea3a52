"""What a run produces besides numbers: findings, and conditions that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from tilesim.findings.finding import Finding
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.records import dataclass, field
from tilesim.sim.machine.schedule import Asker, Draw
from tilesim.sim.machine.unknown import Unknown

if TYPE_CHECKING:
    from tilesim.findings.finding import Named
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.labels import AgentLike


class Leant(NamedTuple):
    """What may be what accepts something, by the name of a switch or an assumption, with the
    numbers of instructions. ``surely``: without that switch it is a finding."""

    name: str
    numbers: tuple[int, ...]
    surely: bool = False


Condition = Literal["A", "B", "C1", "C2", "N", "I", "T", "R", "P"]


@dataclass(frozen=True, slots=True)
class Violation:
    """A determinacy condition that failed: where, between which warps, in which phase.

    ``past`` is the clock of what must have happened before ``op``: the divergent schedule of
    DETERMINACY theorem 2 runs just that, then ``op``. ``harmless``: what ``op`` and ``other`` count
    for is immaterial if the barrier's arrivals may change places.
    """

    condition: Condition
    barrier: Named
    phase: int
    op: Op
    warp: AgentLike
    other: Op | None = None
    other_warp: AgentLike | None = None
    past: Clock | None = None
    harmless: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Doubts with the same key are the same defect in another iteration."""
        return (
            self.condition,
            self.barrier.label,
            self.op.loc,
            self.other and self.other.loc,
            self.harmless,
        )


@dataclass(slots=True)
class Outcome:
    """What a run produced besides numbers."""

    findings: list[Finding] = field(default_factory=list)
    #: reads of what nothing has filled, in tiles of which other parts were filled
    unfilled: list[Finding] = field(default_factory=list)
    violations: dict[tuple[object, ...], tuple[Violation, object]] = field(default_factory=dict)
    nondeterminism: dict[str, Loc] = field(default_factory=dict)
    #: what of it others than this grid decide
    elsewhere: dict[str, Loc] = field(default_factory=dict)
    explorable: bool = True
    #: allocations of tensor memory whose addresses may decide what is executed
    allocated: dict[int, Op] = field(default_factory=dict)
    #: numbers drawn from counters, where their order is all that schedules can differ in
    draws: list[Draw] = field(default_factory=list)
    #: for each of them the next one in number of the warps that could have drawn instead, if the
    #: order was told
    contenders: list[int | None] = field(default_factory=list)
    #: by cluster and by the warp that asked it: how many clusters launch control has cancelled
    asked: dict[tuple[int, Asker], int] = field(default_factory=dict)
    #: where addresses come from that are not known, into tensors that are only read
    in_bounds: dict[str, None] = field(default_factory=dict)
    #: what depends on where memory begins, a sentence each
    decided_by_bases: dict[str, None] = field(default_factory=dict)
    #: where data decides whether a loop ends
    data_loops: dict[Loc, None] = field(default_factory=dict)
    #: where data decides whether the kernel traps
    data_traps: dict[Loc, None] = field(default_factory=dict)
    #: allocations of tensor memory that may wait for a CTA of their cluster on the same SM
    spread: dict[Loc, None] = field(default_factory=dict)
    #: by how often they have come there, the branch by which all threads of the CTA may end, and
    #: what decides that
    leaves: dict[int, tuple[int, Unknown]] = field(default_factory=dict)
    #: why the run ended before the kernel did; empty if it did not
    cut_off: str = ""
    interrupted: bool = False
    #: a warp waited for others to change a word of global memory
    waited: bool = False
    #: undefined behaviour ended the run
    undefined: bool = False
    #: sums of floats, which steer nothing, are made in an order that depends on the schedule
    rounds: bool = False
    #: pairs of overlapping allocations: bytes were written as the first and read as the second
    crossed: set[tuple[str, str]] = field(default_factory=set)
    #: stores of unknown data, which race if several warps do not store the same
    unnamed: set[int] = field(default_factory=set)
    #: what may have been accepted by a switch of SEMANTICS 0.3, or as a proof takes it for granted
    leaned: set[Leant] = field(default_factory=set)
