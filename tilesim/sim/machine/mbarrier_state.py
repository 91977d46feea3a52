"""The state of an mbarrier object (SEMANTICS A.3), and how reports and traces put it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tilesim.sim.findings import Named, Stated, together
from tilesim.sim.machine.clock import Clock
from tilesim.sim.machine.conditions import Credit, PhaseRecord, Wait

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.access import Access
    from tilesim.sim.machine.agent import Agent
    from tilesim.sim.machine.core import Core
    from tilesim.sim.machine.misuse import Side
    from tilesim.sim.machine.tail import Tail
    from tilesim.sim.machine.trace import Trace
    from tilesim.sim.machine.who import Place


class MbarrierState:
    """The counts of a barrier, and what its phases publish.

    ``phase`` counts completed phases since init; ``base`` is added so that the clock component
    never repeats a value over re-initialisations. ``engine`` is the component of the remote stores
    (st.async) it tracks, which belong to the generic proxy (D13). In the strict reading of scopes
    (U4), ``peers`` is that of the copies that other CTAs have issued, and ``remote`` what only a
    wait of cluster scope acquires.
    """

    def __init__(
        self,
        machine: Core,
        cta: Place,
        warps: Sequence[Agent],
        address: int,
        component: int,
        engine: int | None,
        peers: int | None,
    ) -> None:
        self.machine = machine
        self.cta = cta
        self.warps = warps
        self.address = address
        self.component = component
        self.engine = engine
        self.peers = peers
        #: what the program calls it here, and called it when it was initialised (arrays may alias)
        self.label = f"mbarrier@{address}"
        self.name = ""
        #: the variable that it lies in, and its place there if that is an array of barriers
        self.variable = "mbarrier"
        self.slot: int | None = None
        self.first_named = self.named
        #: warps that are known to come after the initialisation
        self.visible_to: set[int] = set()
        #: the component and the value in a clock that say so
        self._initialised = (0, 0)
        self.live = False
        #: who has invalidated it
        self.ended: Side | None = None
        self.base = 0
        self.phase = 0
        #: phases that the run has left out, because they are like others (`tilesim.sim.steady`)
        self.skipped = 0
        self.expected = 0
        self.pending = 0
        self.tx = 0
        self.uses_tx = False
        self._sizes: set[int] = set()
        self._irregular = False
        #: several lanes have made one credit; some condition does not hold
        self._crowded = self._doubtful = False
        self.init: Credit | None = None
        self.current = PhaseRecord()
        self.previous = PhaseRecord()
        self.older = PhaseRecord()
        self.joined: Clock = machine.components.clock()
        self.arrived: Clock = self.joined
        self.completed: Clock = self.joined
        #: up to where those who made the last phase's credits had acquired this barrier's phases
        self.handed_on = 0
        #: the same of those whose credits only waits of cluster scope acquire
        self.handed_on_away = 0
        #: the component after the last phase, and after the one before it (perhaps of another life)
        self.done = self.done_before = 0
        self.keeps_clocks = False
        self.joined_remote: Clock | None = None
        self.remote: Clock | None = None
        #: what the open phase, and the last one, publish of this CTA alone, where others have
        #: released as well and that is not apart anyway; and one of those that have
        self.joined_own: Clock | None = None
        self.own: Clock | None = None
        self.joined_by: Place | None = None
        self.by: Place | None = None
        #: other CTAs store to where it tracks that, in the strict reading of scopes
        self.stored_by_peers = False
        #: by component, the last phase whose landings only waits of cluster scope acquire
        self.away: dict[int, int] = {}
        #: of those that the last phase has published: the phase before, and up to where those who
        #: made its credits had acquired them
        self.away_before: dict[int, tuple[int, int]] = {}
        self.landed: list[Access] = []
        self.last_load: tuple[Op, Agent, Access] | None = None
        #: what has made the last asynchronous arrival of this CTA; the component behind its phase
        self.last_arrival: Side | None = None
        self.last_arrival_over = 0
        self.waiters: list[Agent] = []
        #: by component the latest look that was no wait: the barrier must outlive that as well
        self.looks: dict[int, Wait] = {}
        #: a wait on it has passed
        self.waited = False
        #: all that is known of its phases is how many arrivals were made
        self.by_count = True
        #: warps of other CTAs that have arrived, and the position that they published
        self.senders: dict[int, int] = {}
        #: the phases from the first doubtful one on, which nobody may be able to observe
        self.tail: Tail | None = None

    def tracks(self, cta: Place) -> int:
        """The component that says which copies issued in a CTA are complete."""
        return self.component if self.peers is None or cta is self.cta else self.peers

    @property
    def named(self) -> Named:
        """It, as findings name it."""
        return Named(self.label, self.name or self.label, self.slot, self.cta.number)

    @property
    def facts(self) -> Stated:
        """What its state and the contributions to its open phase state."""
        bytes_ = (abs(self.tx),) if self.tx else ()
        state = Stated((self.named,), (), (self.pending, self.expected), bytes_)
        return together((state, self.current.facts))

    def contributions(self, cta: int | None = None) -> Iterator[str]:
        """The contributions to the open phase, one line each; repetitions are counted. ``cta``:
        the one that the text speaks of."""
        return self.current.contributions(cta)

    def skip(self, phases: int) -> None:
        """So many phases more have been completed, an even number, as those before were. Clocks
        stay as they are."""
        self.phase += phases
        self.base -= phases
        self.skipped += phases

    def note_credit(self, trace: Trace, credit: Credit) -> None:
        """Notes a change of the counts, with what it leaves."""
        parts, label = [], self.named.seen_from(credit.warp.cta.number)
        if credit.arrivals:
            parts.append(f"arrives on {label} ({self.pending} left)")
        if credit.tx:
            verb = "expects" if credit.tx > 0 else "completes"
            parts.append(f"{verb} {abs(credit.tx)} bytes on {label}")
        what = ", ".join(parts) or f"touches {label}"
        trace.note(
            "credit", self.component, self.base + self.phase, credit.warp, credit.op,
            f"{what}, phase {self.phase}",
            # more bytes than expected so far: the order may decide which phase gets the rest
            loose=self.keeps_clocks or self.tx < 0,
            alike=(bool(credit.arrivals), credit.tx),
        )  # fmt: skip

    def __str__(self) -> str:
        return self.state()

    def state(self, cta: int | None = None) -> str:
        """Its phase and its counts, in a text that speaks of one ``cta``, or of none."""
        label = self.named.seen_from(cta)
        text = f"{label} phase {self.phase}: {self.pending} of {self.expected} arrivals pending"
        if self.tx > 0:
            text += f", {self.tx} bytes outstanding"
        elif self.tx < 0:
            text += f", {-self.tx} bytes more completed than expected"
        return text
