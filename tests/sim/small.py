"""Small programs in tilesim's IR, and shrinking them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, groupby

from tests.sim import steps as s
from tests.sim.small_grid import translate_grid
from tests.sim.small_lanes import gather
from tests.sim.small_tensor import TensorSteps
from tests.sim.small_wgmma import GroupSteps
from tests.sim.steps import WORD, Small, Step
from tilesim import Builder, Program, bf16, f32, u32
from tilesim.ir.declarations import Mbar, Mbarriers, View
from tilesim.ir.expr import Const, Expr, Operand
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.ir.program import Stmt, rewrite

# ------------------------------------------------------------------ translation


class _Translation:
    """The IR of one small program."""

    def __init__(self, small: Small) -> None:
        everything = [step for steps in small.warps for step in s.every(steps)]
        #: warps of the IR for one of the program
        self.each = 4 if small.family == "wgmma" else 1
        width = small.width * self.each
        self.k = k = Builder("small", "sm_100a" if small.slots else "sm_90a", width)
        if small.ctas > 1:
            k.launch(grid=small.ctas, cluster=small.ctas)
        longest = max([1, *(x.words for x in everything if isinstance(x, s.Copy))])
        places = [x.place + x.stages for x in everything if isinstance(x, s.Store)]
        if places and small.family == "lanes":
            places = [max(places) + 32]
        # a copy writes 16 bytes; one lane stores four of them, all in one footprint; with tensor
        # memory a word is the smallest operand of an mma
        operands = small.operands
        dtype = bf16 if operands else f32 if small.floats else u32
        self.lanes = small.family == "lanes"
        shape: tuple[int, ...] = (8, 16) if operands else (32 if self.lanes else WORD // 4,)
        self.unit = 256 if operands else 4 if self.lanes else WORD
        longest = max(longest, small.words if self.lanes else 1)
        self.source = k.tensor("source", dtype, (longest, *shape))
        self.out = k.tensor("out", dtype, (max([1, *places]), *shape))
        self.words = k.shared("words", dtype, (small.words, *shape))
        self.zeros = (0,) * len(shape)
        self.flags = k.shared("flags", u32, (small.flags,)) if small.flags else None
        self.barriers = self._declare(small, everything)
        self.loaded = k.var("loaded", dtype=f32 if operands or small.floats else u32)
        self.seen = k.var("seen", 0)
        self.tensor = TensorSteps(k, small.slots) if small.slots else None
        accs = [x.acc for x in everything if isinstance(x, (s.WgMma, s.WgUse))]
        self.groups = GroupSteps(k, 1 + max(accs, default=0)) if self.each > 1 else None
        self.flag = k.var("flag", 0)
        #: the first warp of the warpgroup whose steps these are
        self.first: int | None = None
        #: the lanes that are here, and whether a barrier's place depends on the lane
        self.active, self.own = frozenset(range(32)), False
        self.polls = count()
        whole = any(isinstance(x, s.Remote) and x.form != "st" for x in everything)
        self._begin(small, whole=bool(places) or whole)
        programs = [
            (warp, [small.warps[c * small.width + warp] for c in range(small.ctas)])
            for warp in range(small.width)
        ]
        for steps, group in groupby(programs, lambda item: item[1]):
            warps = [warp for warp, _ in group]
            if self.groups is not None:
                self._groups(warps, steps)
                continue
            with k.role(f"w{warps[0]}", warps):
                self._role(steps)
        if self.tensor is not None:
            self.tensor.finish()

    def _groups(self, warps: list[int], programs: list[tuple[Step, ...]]) -> None:
        """Warpgroups, or the first warps of those that have no steps of a warpgroup."""
        assert self.groups is not None
        for warp in warps:
            whole = any(isinstance(x, s.OF_GROUPS) for x in s.every(programs[0]))
            first = 4 * warp
            with self.k.role(f"w{warp}", range(first, first + 4) if whole else first):
                self.first = first if whole else None
                if whole:
                    self.groups.fill()
                self._role(programs)

    def _declare(self, small: Small, everything: list[Step]) -> list[Mbar]:
        """One array per barrier, or one of them all where a program walks a ring."""
        if any(getattr(x, "stages", 1) > 1 or isinstance(x, s.Own) for x in everything):
            self.ring: Mbarriers | None = self.k.mbarriers("b", len(small.counts))
            return [self.ring[i] for i in range(len(small.counts))]
        self.ring = None
        return [self.k.mbarriers(f"b{i}")[0] for i in range(len(small.counts))]

    def _begin(self, small: Small, *, whole: bool) -> None:
        k = self.k
        if self.tensor is not None:
            self.tensor.begin(self.words)
        if self.groups is not None:
            self.groups.begin(self.words)
        if self.lanes:
            with k.role("first", 0):
                for word in range(small.words):
                    k.mem.store(self.words[word, k.lane_id], 0)
                k.fence.proxy_async()
        with k.one_thread():
            for flag in range(small.flags):
                k.mem.store(self._flag(flag, None), 0)
            for word in range(0 if self.unit != WORD else small.words):
                for part in range(WORD // 4 if whole else 1):
                    k.mem.store(self.words[word, part], 0)
            if small.fenced:
                k.fence.proxy_async()
            for barrier, expected in zip(self.barriers, small.counts, strict=True):
                if expected:
                    k.mbarrier.init(barrier, expected)
            if small.ctas > 1:
                k.fence.mbarrier_init()
        k.sync_threads()
        if small.ctas > 1:
            k.cluster.sync()
        if self.tensor is not None:
            self.tensor.ready()

    def _role(self, programs: list[tuple[Step, ...]]) -> None:
        """The steps of a warp in every CTA."""
        if all(steps == programs[0] for steps in programs):
            self._block(programs[0], None)
            return
        for cta, steps in enumerate(programs):
            with self.k.if_(self.k.cluster_rank.eq(cta)):
                self._block(steps, None)

    def _block(self, steps: tuple[Step, ...], trip: Expr | None) -> None:
        """Steps in iteration ``trip`` of the loops around them."""
        for step in steps:
            self._step(step, trip)

    def _step(self, step: Step, trip: Expr | None) -> None:
        k = self.k
        match step:
            case s.Lanes() | s.Elect() | s.WarpSync() | s.CpAsync() | s.CpWait() | s.Own():
                self._lanes(step, trip)
            case s.Gather():
                gather(k, step, self.active, self.seen, self.source[0, 0])
            case s.Remote() if self.lanes:
                cell = self.words[step.word, k.lane_id].at(step.cta)
                k.cluster.st_async(cell, 1, self._barrier(step.barrier, 1, trip).at(step.cta))
            case s.Loop(trips=trips, body=body):
                with k.loop(trips) as i:
                    self._block(body, i if trip is None else trip * trips + i)
            case s.When(modulus=modulus, rest=rest, body=body):
                with k.if_((_number(trip) % modulus).eq(rest)):
                    self._block(body, trip)
            case s.Wait() | s.WaitUnless() | s.Peek() | s.Poll():
                self._wait(step, trip)
            case s.Join(id=id_, warps=warps, waits=True):
                k.bar.sync(id_ + 1, 32 * warps, aligned=len(self.active) == 32)
            case s.Join(id=id_, warps=warps):
                k.bar.arrive(id_ + 1, 32 * warps, aligned=len(self.active) == 32)
            case s.ClusterArrive(relaxed=relaxed):
                k.cluster.arrive(sem="relaxed" if relaxed else "release")
            case s.ClusterWait():
                k.cluster.wait()
            case s.Fence(space=space):
                if space == "release" or space == "acquire":
                    k.fence.proxy_async_generic(space)
                else:
                    k.fence.proxy_async(space)
            case s.Arrive(full=True):
                self._arrive(step, trip)
            case s.MemoryFence(scope=scope):
                k.fence.memory("acq_rel", scope)
            case s.Remote(form="st" | "red"):
                self._remote_lanes(step, trip)
            case s.Ld() | s.St() | s.TensorWait() | s.TensorFence():
                assert self.tensor is not None
                self.tensor.warp(step, trip)
            case _ if self.lanes:
                self._one_lane(step, trip)
            case s.WgFence() | s.WgMma() | s.WgCommit() | s.WgWait() | s.WgUse():
                assert self.groups is not None
                self.groups.step(step, self.words, trip)
            case _ if self.first is not None:
                # a warpgroup is one agent of the reference: what one warp does follows on all four
                k.bar.sync(15 - self.first // 4, 128)
                with k.if_(k.warp_id.eq(self.first)), k.elected():
                    self._one_lane(step, trip)
            case _:
                with k.elected():
                    self._one_lane(step, trip)

    def _lanes(self, step: Step, trip: Expr | None) -> None:
        """What tells lanes apart."""
        k = self.k
        match step:
            case s.Lanes(low=low, high=high, body=body, orelse=orelse, meets=meets):
                inside = k.lane_id < high if low == 0 else (k.lane_id >= low) & (k.lane_id < high)
                chosen = k.lane_id.eq(low) if high == low + 1 else inside
                with k.if_(chosen, sync=meets):
                    self._inside(step, body, trip)
                if orelse:
                    with k.else_():
                        self._inside(step, orelse, trip)
            case s.Elect(body=body, meets=meets):
                with k.elected(sync=meets):
                    self.active = frozenset({0})
                    self._block(body, trip)
                    self.active = frozenset(range(32))
            case s.WarpSync():
                k.sync_warp(sum(1 << lane for lane in self.active))
            case s.CpAsync(word=word):
                k.cp_async.copy(self.words[word, k.lane_id], self.source[word, k.lane_id], size=4)
            case s.CpWait():
                k.cp_async.wait_all()
            case s.Own(step=inner):
                self.own = True
                self._step(inner, trip)
                self.own = False
            case _:
                raise AssertionError(step)

    def _inside(self, branch: s.Lanes, body: tuple[Step, ...], trip: Expr | None) -> None:
        """An arm of a branch."""
        before = self.active
        chosen = frozenset(range(branch.low, branch.high))
        self.active = before & chosen if body is branch.body else before - chosen
        self._block(body, trip)
        self.active = before

    def _wait(self, step: s.Wait | s.WaitUnless | s.Peek | s.Poll, trip: Expr | None) -> None:
        k, barrier = self.k, self._barrier(step.barrier, step.stages, trip)
        parity: Operand = step.parity
        if step.carried and trip is not None:
            parity = (trip // step.stages & 1) ^ step.parity
        match step:
            case s.Wait():
                k.mbarrier.wait(barrier, parity, sem="relaxed" if step.relaxed else "acquire")
            case s.Peek():
                k.mbarrier.test_wait(self.flag, barrier, parity)
            case s.WaitUnless():
                with k.if_(self.flag.eq(0)):
                    k.mbarrier.wait(barrier, parity)
            case s.Poll(then=then, orelse=orelse, blocking=blocking):
                answer = k.var(f"poll{next(self.polls)}")
                poll = k.mbarrier.try_wait if blocking else k.mbarrier.test_wait
                poll(answer, barrier, parity)
                with k.if_(answer.ne(0)):
                    self._block(then, trip)
                if orelse:
                    with k.else_():
                        self._block(orelse, trip)

    def _barrier(self, index: int, stages: int, trip: Expr | None) -> Mbar:
        if self.own and self.ring is not None:
            return self.ring[self.k.lane_id + index]
        if stages == 1 or trip is None or self.ring is None:
            return self.barriers[index]
        return self.ring[trip % stages + index]

    def _arrive(self, step: s.Arrive, trip: Expr | None) -> None:
        k, barrier = self.k, self._barrier(step.barrier, step.stages, trip)
        if step.cta is not None:
            barrier = barrier.at(step.cta)
        if step.drop:
            k.mbarrier.arrive_drop(
                barrier, step.count, sem="relaxed" if step.relaxed else "release"
            )
        elif step.relaxed:
            k.mbarrier.arrive(barrier, step.count, sem="relaxed")
        else:
            k.mbarrier.arrive(barrier, step.count, no_complete=step.partial)

    def _one_lane(self, step: Step, trip: Expr | None) -> None:
        k = self.k
        match step:
            case s.Arrive():
                self._arrive(step, trip)
            case s.ArriveExpect(barrier=b, words=words, stages=stages):
                k.mbarrier.arrive_expect_tx(self._barrier(b, stages, trip), words * self.unit)
            case s.Expect(barrier=b, words=words, stages=stages):
                k.mbarrier.expect_tx(self._barrier(b, stages, trip), words * self.unit)
            case s.Complete(barrier=b, words=words, stages=stages):
                k.mbarrier.complete_tx(self._barrier(b, stages, trip), words * self.unit)
            case s.Later(barrier=b, inc=inc, stages=stages):
                k.cp_async.mbarrier_arrive(self._barrier(b, stages, trip), noinc=not inc)
            case s.Init(barrier=b, count=expected):
                k.mbarrier.init(self.barriers[b], expected)
            case s.Inval(barrier=b):
                k.mbarrier.inval(self.barriers[b])
            case s.Copy():
                self._copy(step, trip)
            case s.Read(scope=str(scope)):
                k.mem.load(self.loaded, self._cell(step, trip), sem="relaxed", scope=scope)
            case s.Read():
                k.mem.load(self.loaded, self._cell(step, trip))
            case s.Write(scope=str(scope)):
                k.mem.store(self._cell(step, trip), 1, sem="relaxed", scope=scope)
            case s.Write():
                # numbers that differ: nothing that threads write is the same (H23)
                k.mem.store(self._cell(step, trip), k.thread_id + 1024 * k.cluster_rank)
            case s.Red(op=op, scope=at):
                k.mem.atomic(self._cell(step, trip), op, 1, scope=at)
            case s.Set() | s.Add() | s.Spin():
                self._on_flag(step)
            case s.Remote():
                self._remote_bulk(step, trip)
            case s.Mma() | s.Cp():
                assert self.tensor is not None
                word = self.words[_walk(step.word, step.stages, trip)]
                self.tensor.engine(step, word, trip)
            case s.TensorCommit(barrier=b, mask=mask, stages=stages):
                k.tcgen05.commit(self._barrier(b, stages, trip), multicast=mask)
            case s.Store(word=word, place=place) if self.lanes:
                k.bulk.store(self.out[k.lane_id + place], self.words[word])
            case s.Store(word=word, place=place, stages=stages):
                source = self.words[_walk(word, stages, trip)]
                k.bulk.store(self.out[_walk(place, stages, trip)], source)
            case s.Commit():
                k.bulk.commit_group()
            case s.WaitGroup(pending=pending, read=read):
                k.bulk.wait_group(pending, read=read)
            case _:
                raise AssertionError(step)

    def _copy(self, step: s.Copy, trip: Expr | None) -> None:
        k, barrier = self.k, self._barrier(step.barrier, step.stages, trip)
        target = self.words[_walk(step.word, step.stages, trip)]
        source = self.source[0]
        if self.lanes:
            source = self.source[step.word]
        if step.words > 1:
            target = self.words[step.word : step.word + step.words]
            source = self.source[: step.words]
        k.bulk.load(target, source, barrier, multicast=step.mask)

    def _cell(self, step: s.Read | s.Write | s.Red, trip: Expr | None) -> View:
        """The element of a word that one lane accesses."""
        if self.lanes:
            own = None if isinstance(step, s.Red) else step.cell
            return self.words[step.word, self.k.lane_id if own is None else own]
        cell = self.words[(_walk(step.word, step.stages, trip), *self.zeros)]
        return cell if step.cta is None else cell.at(step.cta)

    def _flag(self, flag: int, cta: int | None) -> View:
        assert self.flags is not None
        view = self.flags[flag]
        return view if cta is None else view.at(cta)

    def _on_flag(self, step: s.Set | s.Add | s.Spin) -> None:
        k, flag = self.k, self._flag(step.flag, step.cta)
        match step:
            case s.Set(value=value, release=release, scope=scope):
                k.mem.store(flag, value, sem="release" if release else "relaxed", scope=scope)
            case s.Add(release=release, scope=scope):
                k.mem.atomic(flag, "add", 1, sem="release" if release else "relaxed", scope=scope)
            case s.Spin(least=least, acquire=acquire, scope=scope):
                k.assign(self.seen, 0)
                with k.while_(self.seen < least):
                    k.mem.load(
                        self.seen, flag, sem="acquire" if acquire else "relaxed", scope=scope
                    )

    def _remote_lanes(self, step: s.Remote, trip: Expr | None) -> None:
        """Four lanes write a word of the peer, when the warp has met: it acts as one here."""
        self.k.sync_warp()
        k, barrier = self.k, self._barrier(step.barrier, step.stages, trip).at(step.cta)
        with k.if_(k.lane_id < WORD // 4):
            cell = self.words[_walk(step.word, step.stages, trip), k.lane_id].at(step.cta)
            if step.form == "st":
                k.cluster.st_async(cell, 1, barrier)
            else:
                k.cluster.red_async(cell, "add", 1, barrier)

    def _remote_bulk(self, step: s.Remote, trip: Expr | None) -> None:
        k, barrier = self.k, self._barrier(step.barrier, step.stages, trip).at(step.cta)
        target = self.words[_walk(step.word, step.stages, trip)].at(step.cta)
        source = self.words[_walk(step.source, step.stages, trip)]
        if step.form == "copy":
            k.bulk.copy(target, source, barrier)
        else:
            k.bulk.reduce_peer(target, source, barrier)


def _number(trip: Expr | None) -> Expr:
    return Const(0) if trip is None else trip


def _walk(first: int, stages: int, trip: Expr | None) -> Operand:
    return first if stages == 1 or trip is None else trip % stages + first


def translate(small: Small, *, one_line: bool = False) -> Program:
    """The program in tilesim's IR; every instruction on a line of its own unless ``one_line``."""
    grid = small.family == "grids"
    program = translate_grid(small) if grid else _Translation(small).k.finish()
    if one_line:
        return program
    lines = count(1)

    def place(stmt: Stmt) -> tuple[Stmt, ...]:
        return (replace(stmt, loc=Loc("small", next(lines))),) if isinstance(stmt, Op) else (stmt,)

    return replace(program, body=rewrite(program.body, place))


# ------------------------------------------------------------------ shrinking


def smaller(small: Small) -> Iterator[Small]:
    """Programs with one thing less."""
    if small.width > 1:
        for warp in range(small.width):
            gone = range(warp, len(small.warps), small.width)
            kept = tuple(w for i, w in enumerate(small.warps) if i not in gone)
            yield replace(small, warps=kept)
    for warp, steps in enumerate(small.warps):
        for fewer in _fewer(steps):
            yield replace(small, warps=(*small.warps[:warp], fewer, *small.warps[warp + 1 :]))
    for slots in range(small.slots - 1, 0, -1):
        if all(x.slot + x.slots <= slots for x in _all(small) if isinstance(x, s.ON_SLOT)):
            yield replace(small, slots=slots)
    for barrier, expected in enumerate(small.counts):
        if expected > 1:
            counts = (*small.counts[:barrier], expected - 1, *small.counts[barrier + 1 :])
            yield replace(small, counts=counts)


def _all(small: Small) -> Iterator[Step]:
    for steps in small.warps:
        yield from s.every(steps)


def _fewer(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    for i, step in enumerate(steps):
        yield steps[:i] + steps[i + 1 :]
        bodies = s.parts(step)
        for body in bodies:
            yield steps[:i] + body + steps[i + 1 :]
        for which, body in enumerate(bodies):
            for less in _fewer(body):
                changed = s.with_parts(step, (*bodies[:which], less, *bodies[which + 1 :]))
                yield (*steps[:i], changed, *steps[i + 1 :])
        for simpler in _simpler(step):
            yield (*steps[:i], simpler, *steps[i + 1 :])


def _simpler(step: Step) -> Iterator[Step]:
    match step:
        case s.Loop(trips=trips) if trips > 1:
            yield replace(step, trips=trips - 1)
        case s.Arrive(count=arrivals):
            if arrivals > 1:
                yield replace(step, count=arrivals - 1)
            if step.full:
                yield replace(step, full=False)
        case s.Copy(words=words) | s.ArriveExpect(words=words) | s.Expect(words=words):
            if words > 1:
                yield replace(step, words=words - 1)
        case _:
            pass


def shrink(small: Small, fails: Callable[[Small], bool]) -> Small:
    """The smallest program found by removing things while ``fails`` holds."""
    todo = True
    while todo:
        todo = False
        for candidate in smaller(small):
            if fails(candidate):
                small, todo = candidate, True
                break
    return small
