"""What has to come before what in every execution of a program, as its machine says.

Of a program whose schedules all do the same, one run tells: an arrival, or bytes, of a phase come
before every wait for that phase passes (A20), every join of a round of a barrier comes before
any warp leaves it (E1, E20), and a warp's instructions follow each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from tilesim.gpu.emit.trace import is_traced
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.records import dataclass, field
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.observers.event_log import Actor, Happenings, watch
from tilesim.sim.observers.timeline import Instance

if TYPE_CHECKING:
    from tilesim.sim.machine.machine import Warp


@dataclass(frozen=True, slots=True)
class Group:
    """A phase of an mbarrier, or a round of another barrier, counted from 0; ``label`` names it."""

    object: Hashable
    number: int
    label: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.label} {self.number}"


#: in the order of a run: an instruction is entered; it contributes to a group (``issues``: what it
#: has started does so, later); it goes on because a group is complete
Happening = tuple[Literal["enters", "gives", "issues", "takes"], Instance, Group | None]


@dataclass(frozen=True)
class Order:
    """The happenings of a run, in an order in which they can happen, and the instructions by their
    numbers."""

    happenings: tuple[Happening, ...]
    ops: Mapping[int, Op] = field(repr=False)

    def counts(self) -> Counter[tuple[int, int, int]]:
        """How often each warp executes each instruction."""
        return Counter(i[:3] for what, i, _ in self.happenings if what == "enters")


def order_of(
    program: Program, inputs: Mapping[str, Any] | None = None, *, clusters: int = 1
) -> Order:
    """The order of the first ``clusters`` clusters.

    Raises:
        UsageError: what the program executes depends on the schedule, or it fails.
        InvalidProgram: the program is rejected.
    """
    watchers = [Ordered() for _ in range(clusters)]
    numbers = inputs is not None
    simulation = watch(program, inputs or {}, dict(enumerate(watchers)), numbers=numbers)
    happenings = tuple(h for watcher in watchers for h in watcher.happenings)
    ops = {op.number: op for op in simulation.code.mir.ops() if is_traced(op)}
    return Order(happenings, ops)


class Ordered(Happenings[Instance]):
    """Notes the happenings of a run in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.happenings: list[Happening] = []
        self._counts: Counter[tuple[int, int, int]] = Counter()

    def watches(self, op: Op, cycles: int) -> bool:
        """See `Happenings.watches`."""
        return is_traced(op)

    def enters(self, w: Warp, op: Op) -> Instance:
        """See `Happenings.enters`."""
        place = w.cta.number, w.number, op.number
        instance = *place, self._counts[place]
        self._counts[place] += 1
        self.happenings.append(("enters", instance, None))
        return instance

    def gives(self, by: Actor[Instance], barrier: Mbarrier | NamedBarrier, number: int) -> None:
        """See `Happenings.gives`."""
        what: Literal["issues", "gives"] = "issues" if by.engine else "gives"
        self.happenings.append((what, by.executed, group_of(barrier, number)))

    def takes(self, executed: Instance, barrier: Mbarrier | NamedBarrier, number: int) -> None:
        """See `Happenings.takes`."""
        self.happenings.append(("takes", executed, group_of(barrier, number)))


def group_of(barrier: Mbarrier | NamedBarrier, number: int) -> Group:
    """A phase of an mbarrier, or a round of another one."""
    what = "phase" if isinstance(barrier, Mbarrier) else "round"
    return Group(barrier.component, number, f"{barrier.label} {what}")
