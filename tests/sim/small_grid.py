"""Programs of several clusters in tilesim's IR: one lane of each warp does everything."""

from __future__ import annotations

from tests.sim import steps as s
from tests.sim.code_grid import Code
from tests.sim.steps import Small, Step
from tilesim import Builder, Program, u32
from tilesim.ir.declarations import Mbar, View
from tilesim.ir.expr import Const, Expr, Operand

#: bytes of an answer of launch control
_ANSWER = 16


class _Translation:
    """The IR of one program."""

    def __init__(self, small: Small) -> None:
        code = Code(small)
        grid = small.ctas * small.clusters
        self.k = k = Builder("small", "sm_100a" if code.slots else "sm_90a", small.width)
        k.launch(grid=grid, cluster=small.ctas, cooperative=small.cooperative)
        self.small = small
        self.out = k.tensor("out", u32, (max(1, code.places),))
        self.flags = k.tensor("flags", u32, (max(1, small.flags),))
        self.slots = k.shared("slots", u32, (code.slots, 4)) if code.slots else None
        self.ring = k.mbarriers("b", len(small.counts)) if small.counts else None
        self.register = k.var("register", 0, dtype=u32)
        self.found, self.seen = k.var("found", 1, dtype=u32), k.var("seen", dtype=u32)
        self.loaded = k.var("loaded", dtype=u32)
        if self.ring is not None:
            with k.one_thread():
                for barrier, expected in enumerate(small.counts):
                    k.mbarrier.init(self.ring[barrier], expected)
                if small.ctas > 1:
                    k.fence.mbarrier_init()
            k.sync_threads()
        if small.ctas > 1:
            k.cluster.sync()
        for warp in range(small.width):
            programs = small.warps[warp :: small.width]
            with k.role(f"w{warp}", warp), k.elected():
                self._role(programs)
        if small.ctas > 1:
            k.cluster.sync()

    def _role(self, programs: tuple[tuple[Step, ...], ...]) -> None:
        """The steps of one warp of each CTA."""
        if all(steps == programs[0] for steps in programs):
            self._block(programs[0], None)
            return
        for cta, steps in enumerate(programs):
            if steps:
                with self.k.if_(self.k.cta_x.eq(cta)):
                    self._block(steps, None)

    def _block(self, steps: tuple[Step, ...], trip: Expr | None) -> None:
        for step in steps:
            self._step(step, trip)

    def _step(self, step: Step, trip: Expr | None) -> None:
        k = self.k
        match step:
            case s.Forever(body=body):
                with k.loop(100) as i:
                    self._block(body, i)
            case s.Leave():
                with k.if_(self.found.eq(0)):
                    k.break_()
            case s.If(value=value, body=body):
                with k.if_(self.register.eq(value)):
                    self._block(body, trip)
            case s.Tiles(flag=flag, limit=limit, body=body):
                with k.loop(100):
                    k.mem.atomic(self.flags[flag], "add", 1, result=self.register)
                    with k.if_(self.register >= limit):
                        k.break_()
                    self._block(body, trip)
            case s.Put(place=place, by=by):
                k.mem.store(self._place(place, by), 1)
            case s.Get(place=place, by=by):
                k.mem.load(self.loaded, self._place(place, by))
            case s.MemoryFence():
                k.fence.memory("acq_rel", "gpu")
            case s.Cancel() | s.Query():
                self._control(step, trip)
            case s.Set() | s.Add() | s.Ticket() | s.Spin() | s.SpinTicket():
                self._on_flag(step)
            case _:
                self._on_barrier(step, trip)

    def _place(self, place: int, by: bool) -> View:
        return self.out[self.register + place if by else place]

    def _on_flag(self, step: s.Set | s.Add | s.Ticket | s.Spin | s.SpinTicket) -> None:
        k, flag = self.k, self.flags[step.flag]
        match step:
            case s.Set(value=value, release=release, scope=scope):
                k.mem.store(flag, value, sem="release" if release else "relaxed", scope=scope)
            case s.Add(release=release, scope=scope):
                k.mem.atomic(flag, "add", 1, sem="release" if release else "relaxed", scope=scope)
            case s.Ticket(sem=sem, scope=scope):
                k.mem.atomic(flag, "add", 1, result=self.register, sem=sem, scope=scope)
            case s.Spin(least=least, acquire=acquire, scope=scope):
                self._spin(flag, least, acquire=acquire, scope=scope)
            case s.SpinTicket():
                self._spin(flag, self.register, acquire=True, scope="gpu")

    def _spin(self, flag: View, least: Operand, *, acquire: bool, scope: s.Scope) -> None:
        k = self.k
        k.assign(self.seen, 0)
        with k.while_(self.seen < least):
            k.mem.load(self.seen, flag, sem="acquire" if acquire else "relaxed", scope=scope)

    def _barrier(self, barrier: int, stages: int, trip: Expr | None) -> Mbar:
        assert self.ring is not None
        return self.ring[barrier if stages == 1 or trip is None else trip % stages + barrier]

    def _on_barrier(self, step: Step, trip: Expr | None) -> None:
        k = self.k
        match step:
            case s.Wait(barrier=barrier, parity=parity, carried=carried, stages=stages):
                wanted: Operand = parity
                if carried:
                    wanted = ((Const(0) if trip is None else trip) // stages & 1) ^ parity
                k.mbarrier.wait(self._barrier(barrier, stages, trip), wanted)
            case s.Arrive(barrier=barrier, count=count, cta=cta, stages=stages):
                mbar = self._barrier(barrier, stages, trip)
                k.mbarrier.arrive(mbar if cta is None else mbar.at(cta), count)
            case s.ArriveExpect(barrier=barrier, words=words, stages=stages):
                k.mbarrier.arrive_expect_tx(self._barrier(barrier, stages, trip), words * _ANSWER)
            case s.Expect(barrier=barrier, words=words, stages=stages):
                k.mbarrier.expect_tx(self._barrier(barrier, stages, trip), words * _ANSWER)
            case _:
                raise AssertionError(step)

    def _control(self, step: s.Cancel | s.Query, trip: Expr | None) -> None:
        k = self.k
        assert self.slots is not None
        stages, first = step.stages, step.slot
        slot = self.slots[first if stages == 1 or trip is None else trip % stages + first]
        if isinstance(step, s.Cancel):
            k.clc.try_cancel(slot, self._barrier(step.barrier, stages, trip))
            return
        k.clc.query_is_canceled(self.found, slot)
        with k.if_(self.found.ne(0)):
            k.clc.query_first_ctaid(self.register, slot)


def translate_grid(small: Small) -> Program:
    """The program in tilesim's IR."""
    return _Translation(small).k.finish()
