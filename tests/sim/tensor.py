"""tcgen05 in the reference model: tensor memory, its order, and commits (SEMANTICS G.5, G.6).

Nothing is computed and nothing takes time: what matters is which earlier accesses are known to be
over, or run in one pipeline, where the next one is issued.
"""

from __future__ import annotations

from tests.sim import steps as s
from tests.sim.code import Cell, Line
from tests.sim.model import Core
from tests.sim.states import Flight, Next, Tensor

#: what runs in the order of issue (G19)
_PIPELINED = {(s.Mma, s.Mma), (s.Cp, s.Mma)}


class TensorMemory(Core):
    """The moves of tcgen05."""

    def begin_tensor(self) -> Tensor | None:
        """Nothing was issued; None for a program without tensor memory."""
        if not self.program.slots:
            return None
        nothing = (0,) * len(self.program.warps)
        return Tensor(nothing, nothing)

    def _before(self, n: Next, warp: int, kind: type[s.Step], other: Cell) -> bool:
        """Whether ``other`` runs ahead of what ``warp`` issues now, in the same pipeline."""
        assert n.tensor is not None
        informed = n.knows[warp] | n.tensor.seen[warp]
        first = other.warp == warp or bool(informed & other.issued)
        return first and (other.kind, kind) in _PIPELINED

    def _access(self, n: Next, warp: int, line: Line) -> int:
        """Checks an access to tensor memory; returns what runs ahead of it."""
        assert n.tensor is not None
        over = n.knows[warp] | n.tensor.seen[warp]
        ahead = 0
        for other in line.rivals:
            if not n.done & other.over or over & other.over:
                continue
            if not self._before(n, warp, type(line.step), other):
                self.broken("tcgen05-order")
            ahead |= other.over
        return ahead

    def engine(self, n: Next, warp: int, line: Line, known: int) -> None:
        """An mma or a copy: asynchronous, reads a word by the async proxy (G16, G17)."""
        step = line.step
        assert isinstance(step, (s.Mma, s.Cp))
        assert n.tensor is not None
        writes = self.code.writes[self.code.cta[warp]][step.word]
        self.async_access(writes, 0, n.done, known)
        over = self._access(n, warp, line)
        over |= line.events[0] | line.events[2] | self.spent(writes & n.done)
        n.done |= sum(line.events)
        n.knows[warp] |= line.events[1]
        n.tensor = n.tensor._replace(tracked=_with(n.tensor.tracked, warp, over))

    def move(self, n: Next, warp: int, line: Line, known: int) -> None:
        """A load or store of the warp's lanes."""
        self._access(n, warp, line)
        written = (s.Mma, s.St)
        if isinstance(line.step, s.Ld) and not any(
            n.done & other.over for other in line.rivals if other.kind in written
        ):
            self.passing.append("uninitialised-read")
        n.done |= line.events[0]

    def tensor_wait(self, n: Next, warp: int, line: Line, known: int) -> None:
        """G28: the warp's own loads or stores are over."""
        step = line.step
        assert isinstance(step, s.TensorWait)
        own = self.code.stores[warp] if step.stores else self.code.loads[warp]
        n.knows[warp] |= own & n.done

    def tensor_fence(self, n: Next, warp: int, line: Line, known: int) -> None:
        """G22: hands over what was issued and what is over; or relies on what was handed over."""
        step = line.step
        assert isinstance(step, s.TensorFence)
        assert n.tensor is not None
        if step.before:
            self._hand_over(n, warp)
        else:
            seen = list(n.tensor.seen)
            seen[warp] = n.knows[warp] >> 2 * self.shift & self.generic
            n.tensor = n.tensor._replace(seen=tuple(seen))

    def _hand_over(self, n: Next, warp: int) -> None:
        known = n.knows[warp]
        own = sum(line.events[1] for line in self.code.lines[warp] if len(line.events) == 3)
        own |= self.code.loads[warp] | self.code.stores[warp]
        n.knows[warp] |= (known & own) << 2 * self.shift

    def tensor_commit(self, n: Next, warp: int, line: Line, known: int) -> None:
        """G26: an arrival, when all mma and copies of this thread are over; implies the fence."""
        step = line.step
        assert isinstance(step, s.TensorCommit)
        assert n.tensor is not None
        own = self.code.cta[warp]
        self._hand_over(n, warp)
        known, over = n.knows[warp], n.tensor.tracked[warp]
        for cta in (own,) if step.mask is None else range(self.program.ctas):
            if step.mask is not None and not step.mask >> cta & 1:
                continue
            goal = self.reach(n, warp, cta)
            self.use(n, goal * self.count + step.barrier, known)
            n.flights.append(Flight(warp, line.place, goal, known, over))

    def completion(self, flight: Flight) -> int:
        """What a commit's arrival publishes (G23, A28): what is over, and the order before it."""
        over = flight.over & self.generic
        known = over | over << self.shift | over << 2 * self.shift
        return known | flight.over & ~self.generic | flight.issued & self.handed

    def leftover(self, knows: tuple[int, ...], done: int) -> bool:
        """Whether tensor memory is freed, by a warp that all have met, before its use is over."""
        everything = 0
        for known in knows:
            everything |= known
        return bool(self.code.tensor & done & ~(everything | everything >> 2 * self.shift))


def _with(values: tuple[int, ...], place: int, bits: int) -> tuple[int, ...]:
    return (*values[:place], values[place] | bits, *values[place + 1 :])
