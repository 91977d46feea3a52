"""Loads a program into the machine: one function of a warp per instruction of its MIR.

Before that, what the program needs of the machine is found: barriers, components of clocks, kinds
of groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tilesim.analysis.cfg import FlowGraph, graph_of
from tilesim.analysis.divergence import issuers_of, meets_at, met_before, parts_of
from tilesim.analysis.executing_warps import executing
from tilesim.analysis.relaxed import fencing, stores_relaxed
from tilesim.analysis.taint import Dataflow, aliases, at_addresses, flow_of, is_addressed, reached
from tilesim.analysis.uniformity import diverging, private_registers
from tilesim.analysis.uses_defs import (
    computed,
    mentions,
    registers_set,
    sets_only,
)
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.addresses import bases
from tilesim.ir.declarations import Mbar, Mbarriers
from tilesim.ir.elements import goes_on
from tilesim.ir.expr import Binary, Const, Expr, Var, constant
from tilesim.ir.mir import Branch, Control, Instruction, Join, Mir, Switch, Trap
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.ir.scalars import word_accesses
from tilesim.sim.machine import control
from tilesim.sim.machine.addressing import checked
from tilesim.sim.machine.assignment_jit import Assignment, Row, assignment, stretches
from tilesim.sim.machine.async_groups import DRAINED
from tilesim.sim.machine.compose import by_parts
from tilesim.sim.machine.divergence import ends_at, ends_lanes
from tilesim.sim.machine.executable import Allocations
from tilesim.sim.machine.execute import execute, groups
from tilesim.sim.machine.execute.lanes import by_masks, exchanged, idle, idle_row
from tilesim.sim.machine.execute.mbarrier import peek, peeked, wait_unless
from tilesim.sim.machine.execute.wgmma import in_a_row, products
from tilesim.sim.machine.expression import assign
from tilesim.sim.machine.havoc import (
    MayAccess,
    Undecided,
    accessing,
    where_not_known,
    words_are_observed,
)
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Code, Entry, Step, Warp
from tilesim.sim.machine.operands import Operands, from_nothing
from tilesim.sim.machine.release import asks_for_senders
from tilesim.sim.observers.monotone_words import counters, counting_words, polls_memory
from tilesim.sim.observers.tmem_order import drained
from tilesim.transforms.await_condition import peek_flags, polled_flag
from tilesim.transforms.predicated import as_predicates

#: mbarriers at addresses that there is room for: in any case, per instruction that makes some, and
#: more if it is in a loop, or each lane makes its own
_FEW, _EACH, _REPEATED, _LANES = 4, 2, 16, 32


def _constants_of_barriers(mir: Mir) -> dict[int, str]:
    """By number of a named barrier, in brackets the constant of the source that is it."""
    places: dict[int, list[tuple[tuple[str, int], ...]]] = {}
    for number, effect in mir.all_of(fx.JoinsBarrier):
        loc, own = mir.code[number].loc, constant(effect.id)
        if own and loc.behind is not None:
            places.setdefault(int(own), []).append(loc.around)
    if not places:
        return {}
    from tilesim.findings.source_names import named_barrier_name  # what only PTX needs

    found = {number: named_barrier_name(number, own) for number, own in places.items()}
    return {number: f" ({name})" for number, name in found.items() if name}


def note_uses(code: Code, mir: Mir) -> None:
    """What the machine must have for the program: barriers, components of its clocks."""
    kernel = mir.kernel
    warps = executing(mir)
    kinds = [(warps[n], own) for n, own in _group_kinds(mir)]
    code.group_kinds = tuple(sorted({kind for _, own in kinds for kind in own}))
    code.drained = drained(code.graph)
    if code.drained.stored or code.drained.given:
        code.group_kinds += (DRAINED,)
    code.group_warps = frozenset((w, kind) for some, own in kinds for w in some for kind in own)
    code.mbarrier_addresses = tuple(
        sorted(
            {
                kernel.placement[s.name] + 8 * i
                for s in kernel.shared if isinstance(s, Mbarriers)
                for i in range(s.count)
            }
        )
    )  # fmt: skip
    code.spare_mbarriers = _spare_mbarriers(code.graph)
    orders = mir.all_of(fx.Orders)
    own = (e for _, e in mir.all_of(fx.Crosses) if {"async.own", "half.own"} & {*e.targets})
    code.fences_own = kernel.cluster_size > 1 and any(own) and _reaches_peers(mir)
    code.forgets = any(t.contents is not None for t in kernel.tensors) or any(
        e.unknown for _, e in mir.all_of(fx.Defines)
    )
    code.forgets = code.forgets or any(e.ignored for _, e in mir.all_of(fx.Reads))
    code.fences_in_shared = any(e.in_shared for _, e in orders)
    relaxed = any(getattr(e, "sem", "") == "relaxed" for own in mir.effects for e in own)
    code.fences_tensor = relaxed and any(not e.before for _, e in mir.all_of(fx.OrdersTmem))
    code.is_generic = all(map(_is_generic, (e for own in mir.effects for e in own)))
    code.fencing = fencing(mir)
    code.stores_relaxed = stores_relaxed(mir)
    code.elements = max((e.element[1] for _, e in mir.all_of(fx.Writes) if e.element), default=0)
    named = frozenset(_asynchronous(mir))
    code.async_tensors = named.union(name for at, name in reached(mir) if at in named)
    maps = {e.view.tensor.name for _, e in mir.all_of(fx.Reads) if e.proxy == "tensormap"}
    code.map_tensors = frozenset(maps).union(name for at, name in reached(mir) if at in maps)
    code.fence_inits = frozenset(w for n, e in orders if e.inits for w in warps[n])
    numbers = {constant(e.id) for _, e in mir.all_of(fx.JoinsBarrier)}
    code.named_barriers = tuple(n for n in range(16) if None in numbers or n in numbers)
    code.constants_of_barriers = _constants_of_barriers(mir)
    code.fences_sc = any(e.sc for _, e in mir.all_of(fx.Orders))
    code.uses_cluster = bool(mir.all_of(fx.JoinsCluster))
    code.uses_tcgen05 = any("tcgen05" in op.features for op in mir.ops())
    code.uses_remote_stores = bool(mir.all_of(fx.RemoteStore))
    code.async_accesses = frozenset(
        warp
        for number, access in enumerate(word_accesses(mir))
        if access is not None and access.asynchronous
        for warp in warps[number]
    )
    code.tracks_loads = any(e.asynchronous for _, e in mir.all_of(fx.Completes))
    code.exchanges = any(e.proxy == "generic" for _, e in mir.all_of(fx.Writes))
    code.losing = frozenset(n for n, e in mir.all_of(fx.Writes) if e.lost)
    arrivals = mir.all_of(fx.Arrives)
    code.tracks_copies = any(e.group == "cp.async" for _, e in arrivals)
    # the order of such credits matters within a phase: bytes or arrivals that are expected apart
    # from an arrival, arrivals that see how many are pending, and completions of no bytes
    code.has_loose_credits = (
        bool(mir.all_of(fx.Expects))
        or any(e.lent or e.partial for _, e in arrivals)
        or any(e.bytes is not None and not constant(e.bytes) for _, e in mir.all_of(fx.Completes))
    )


#: effects that no other proxy has a part in, and that complete at once
_GENERIC = (
    fx.Defines, fx.JoinsBarrier, fx.Gathers, fx.GathersWarps, fx.Shuffles, fx.Agrees, fx.Elects,
    fx.Exits,
)  # fmt: skip


def _is_generic(effect: fx.Effect) -> bool:
    """Whether an effect is of the generic proxy, at once, and in rows S and G of clocks."""
    match effect:
        case fx.Reads(proxy="generic", asynchronous=False):
            return True
        case fx.Writes(proxy="generic", asynchronous=False):
            return True
        case fx.Orders(in_shared=False):
            return True
        case _:
            return isinstance(effect, _GENERIC)


def _spare_mbarriers(graph: FlowGraph) -> int:
    """How many mbarriers ``mbarrier.init`` may make at addresses: an estimate."""
    mir = graph.mir
    if not is_addressed(mir):
        return 0
    operands = (value for op in mir.ops() for value in vars(op).values())
    if not any(isinstance(v, Mbar) and isinstance(v.array, AddressedMbarriers) for v in operands):
        return 0
    inits = [number for number, _ in mir.all_of(fx.InitsMbarrier)]
    back_edges = [(i.what.target, n) for n, i in enumerate(mir.code) if isinstance(i.what, Branch)]
    repeated = sum(any(head <= n <= end for head, end in back_edges) for n in inits)
    lanes, named = diverging(graph), mentions(mir)
    own = sum(lanes.any_differs(named[n].used, n) for n in inits)
    return _FEW + _EACH * len(inits) + _REPEATED * repeated + _LANES * own


def _reaches_peers(mir: Mir) -> bool:
    """True if a CTA accesses the shared memory of another one, through whichever proxy: it may be
    what a fence is for (a store there) or what comes after one (a copy over what its owner has
    accessed)."""
    return (
        bool(mir.all_of(fx.RemoteStore))
        or any(e.view.remote for e in _accesses(mir))
        or any(e.multicast is not None for _, e in mir.all_of(fx.Completes))
        or any(e.pair for _, e in mir.all_of(fx.Issues))
    )


def _asynchronous(mir: Mir) -> Iterator[str]:
    """The tensors that are accessed by the async proxy."""
    for access in _accesses(mir):
        if access.proxy == "async":
            yield access.view.tensor.name
    yield from (t.name for _, effect in mir.all_of(fx.ReadsMap) for t in effect.map.tensors)
    yield from (t.name for _, effect in mir.all_of(fx.WritesMap) for t in effect.map.tensors)


def _accesses(mir: Mir) -> Iterator[fx.Reads | fx.Writes]:
    yield from (effect for _, effect in mir.all_of(fx.Reads))
    yield from (effect for _, effect in mir.all_of(fx.Writes))


def _group_kinds(mir: Mir) -> Iterator[tuple[int, tuple[str, ...]]]:
    """By number, group kinds that instructions use: they complete through one, commit it, wait for
    it."""
    through: list[tuple[int, fx.Commits | fx.WaitsGroup | fx.Issues]] = [
        *mir.all_of(fx.Commits), *mir.all_of(fx.WaitsGroup), *mir.all_of(fx.Issues)
    ]  # fmt: skip
    for number, effect in through:
        bulk = effect.group == "bulk"
        yield number, ("bulk", "bulk.write") if bulk else (effect.group,)
    for number, read in mir.all_of(fx.Reads):
        if read.proxy == "tensormap":
            yield number, ("bulk", "bulk.write", "bulk.map")
    for number, _ in mir.all_of(fx.UsesTmem):
        yield number, ("tcgen05", "tcgen05.ld", "tcgen05.st", "tcgen05.order")


def overlaid(program: Program, flow: Dataflow) -> frozenset[str]:
    """Shared allocations that overlap, where the contents of one of them may steer."""
    pairs = [pair for pair in aliases(program) if pair[1] in flow.steering]
    return frozenset(name for pair in pairs for name in pair)


# ------------------------------------------------------------------ one function per instruction


class Compiler(Operands):
    """Compiles one program.

    ``numbers`` off skips data that no scalar load can observe; ``stays``: `Facts.stays`.
    """

    def __init__(self, mir: Mir, *, numbers: bool, stays: Mapping[int, Expr]) -> None:
        graph, kernel = graph_of(mir), mir.kernel
        code = Code(graph, flow_of(graph), ranks=graph.ranks)
        super().__init__(code, numbers=numbers or code.flow.steers_by_tiles)
        code.opens = self.open.opens
        code.stays = stays
        code.parts, code.issuers = parts_of(graph), issuers_of(graph)
        code.overlaid = overlaid(kernel, code.flow)
        code.alloc_slots = frozenset(
            e.view.tensor.name
            for _, e in mir.all_of(fx.Writes)
            if isinstance(e.value, fx.AllocatesTmem)
        )
        code.slots = {v.name: i for i, v in enumerate(kernel.variables)}
        code.open_registers = frozenset(code.slots[name] for name in self.open.registers)
        code.may_be_unset = self.open.at_entry
        code.bases = bases(kernel)
        located = next((i.loc for i in mir.code if i.loc.behind is not None), None)
        code.allocations = Allocations.of(kernel, None if located is None else located.around[0])
        code.of_threads = frozenset(tensor.name for tensor in kernel.tensors if tensor.private)
        code.sizes = {tensor.name: tensor.nbytes for tensor in kernel.tensors}
        #: by number, those that may be made together with others
        self._assignments: dict[int, Assignment] = {}
        private = private_registers(graph)
        code.private = frozenset(slot for name, slot in code.slots.items() if name in private)
        #: variables that only say whether a poll must be repeated as a wait
        self._peek_flags = peek_flags(mir)
        code.counters = counters(mir, self.word_waits)
        code.counting = counting_words(mir, self.word_waits, code.counters)
        code.words_are_observed = words_are_observed(mir)
        code.asks_for_senders = asks_for_senders(mir)

    def compile(self) -> Code:
        """The whole program; the last step ends the warp."""
        mir, code = self.mir, self.code
        note_uses(code, mir)
        spaces = {tensor.space for tensor in at_addresses(mir)}
        code.global_by_name = spaces.isdisjoint(("global", "generic"))
        rows = [*in_a_row(mir)]
        together = {number for row, _ in rows for number in row}
        for number, instruction in enumerate(mir.code):
            what = instruction.what
            # of the counter of a loop, reports and timelines show nothing but a place
            origin = what if isinstance(what, Op) and not instruction.counts else what.loc
            code.origins.append(origin)
            code.steps.append(self._entry(number, instruction, later=number in together))
        heads = {i.what.target for i in mir.code if isinstance(i.what, Branch) and i.what.polls}
        for head in heads:
            self._remember(head)
        code.origins.append(mir.kernel.loc)
        code.steps.append((control.finish, False, 0))
        code.alone = list(code.steps)
        for number, instruction in enumerate(mir.code):
            match instruction.what:
                case Branch(cond=None, polls=False, target=head) if head < number:
                    if number - 1 not in heads:
                        self._close_loop(number - 1, head)
        for row, ops in rows:
            step = self._by_parts(products(self, ops), ops[0])
            cycles = sum(op.cycles + mir.code[op.number].left_out for op in ops)
            self._fuse((step, False, cycles), *row)
        self._fuse_idle(heads)
        self._fuse_assignments(heads)
        return code

    def _entry(self, number: int, instruction: Instruction, *, later: bool) -> Entry:
        """``later``: it is hardly ever executed, so it is compiled when it is."""
        what, guard = instruction.what, instruction.guard
        if isinstance(what, Op):
            op = what
            step = control.later(lambda: self._op(op, guard)) if later else self._op(op, guard)
            step = self._with_checked_addresses(step, number, instruction)
            cycles = 0 if instruction.counts else op.cycles + instruction.left_out
            return step, op.synchronises and not goes_on(op), cycles
        control_step = self._control(number, what)
        return (
            self._with_checked_addresses(control_step, number, instruction),
            False,
            instruction.left_out,
        )

    def _with_checked_addresses(self, step: Step, number: int, instruction: Instruction) -> Step:
        """The step of an instruction, behind a check of what has to hold where it is executed."""
        what, guard = instruction.what, instruction.guard
        asked = self.code.stays.get(number)
        if asked is None or (isinstance(what, Op) and self._is_idle(what)):
            return step
        executes = None if guard is None else self.expr(guard)
        return checked(step, self.expr(asked), executes, what)

    def _op(self, op: Op, guard: Expr | None) -> Step:
        if self._is_idle(op):
            self.code.idle.add(op.number)
            step, names = idle(self, op), frozenset(var.name for var in registers_set(op))
            if guard is None:
                return step
            return control.guarded(step, self.expr(guard), self._slots(names))
        if guard is None:
            step = groups.storing(self._step(op), op, self.code.drained)
            if self._is_exchange(op):
                return exchanged(self, op, step)
            if ends_lanes(op):
                return control.ending(step, lambda w: FULL)
            return step
        flag = polled_flag(guard)
        if flag is not None and flag.name in self._peek_flags:
            match op.effects():
                case (fx.Waits(poll=False) as effect,):
                    return self._by_parts(wait_unless(self, guard, flag, op, effect), op)
        skip = self._slots(computed(op.effects()))
        may_access = self._slots(accessing(op.effects()))
        step = control.guarded(self._step(op), self.expr(guard), skip, may_access)
        if ends_lanes(op):
            end = len(self.mir.code)
            return control.ending(step, self.expr(guard), Undecided(self.code, op.number, end, end))
        return step

    def _is_idle(self, op: Op) -> bool:
        """Whether nothing that the machine follows depends on what an instruction computes."""
        if self.numbers or not sets_only(op):
            return False
        if from_nothing(op):
            return False  # it costs nothing, and may be stored
        needed = self.flow.deciding | self.open.needed
        return all(result.name not in needed for result in registers_set(op))

    def _is_exchange(self, op: Op) -> bool:
        """Whether lanes exchange what decides nothing."""
        match op.effects():
            case (fx.Gathers(mask=Expr() as mask, orders=False), *rest) if constant(mask) == FULL:
                results = [e.var.name for e in rest if isinstance(e, fx.Defines)]
                whole = len(results) == len(rest) > 0
                needed = self.flow.deciding | self.open.registers
                return whole and not self.numbers and needed.isdisjoint(results)
            case _:
                return False

    def _step(self, op: Op) -> Step:
        """What an instruction does: its effects."""
        poll = peeked(op)
        if poll is not None and poll[1].name in self._peek_flags:
            step = peek(self, op, *poll)
        else:
            step = by_masks(self, op, self.looked_at(op, execute(self, op)))
            if self.code.forgets and accessing(op.effects()) is not None:
                step = where_not_known(step, MayAccess(self, op))
        return self._by_parts(step, op)

    def _by_parts(self, step: Step, op: Op) -> Step:
        return by_parts(self, op, step) if self.code.parts else step

    def _remember(self, head: int) -> None:
        if head == len(self.mir.code):
            return
        step, sync, cycles = self.code.steps[head]
        what = self.mir.code[head].what
        tests = isinstance(what, Branch) and not what.polls
        self.code.steps[head] = control.remember(step, head, tests=tests), sync, cycles

    def _control(self, number: int, what: Control) -> Step:
        match what:
            case Join():
                ends = ends_at(self.mir, number) == number
                return control.join(number, syncs=what.syncs, ends=ends)
            case Trap(cond=cond):
                return control.trap(self.expr(cond), what)
            case Switch(index=index):
                meet = self.code.graph.reconvergence.get(number, len(self.mir.code))
                arms = sum(self._synchronises(target, meet) for target in {*what.targets}) > 1
                end = ends_at(self.mir, meet)
                return control.switch(what, self.expr(index), meet, end, arms=arms)
            case Branch(polls=True):
                memory = any(map(polls_memory, self._iteration(number, what.target)))
                self.code.polls_memory |= memory
                step = self._branch(number, what)
                return control.poll_again(step, what.target, what.loc, memory=memory)
            case Branch():
                return self._branch(number, what)

    def _branch(self, number: int, what: Branch) -> Step:
        meet = self.code.graph.reconvergence.get(number)
        if what.cond is None or meet is None:
            return control.jump(what.target)
        alone = self._alone_since(number, what.target, meet)
        sides = (number + 1, what.target)
        apart = meet not in sides and self._goes_apart(number, what.target, meet)
        parts = apart and all(self._synchronises(side, meet) for side in sides)
        return control.branch(
            what, self.expr(what.cond), meet, ends_at(self.mir, meet), alone=alone, parts=parts,
            undecided=Undecided(self.code, number, what.target, meet),
            divides=not as_predicates(self.code.graph, number),
        )  # fmt: skip

    def _slots(self, names: frozenset[str] | None) -> tuple[int, ...] | None:
        """Where these registers are, in programs in which anything is not known."""
        if names is None or not self.code.forgets:
            return None
        return tuple(self.code.slots[name] for name in sorted(names))

    def _iteration(self, number: int, head: int) -> Iterable[Instruction]:
        """What may be executed between the head of a loop and a way back to it."""
        graph = self.code.graph
        tail = graph.block_of[number]
        inside = next(
            (x.blocks for x in graph.loops if (x.head, x.tail) == (graph.block_of[head], tail)),
            graph.order,
        )
        return (self.mir.code[n] for block in inside for n in graph.blocks[block])

    def _alone_since(self, number: int, target: int, meet: int) -> int | None:
        """Where all lanes meet before a branch that sends some of them to where they meet again;
        None if it is not so."""
        graph, code = self.code.graph, self.mir.code
        if target != meet or not meets_at(graph, meet):
            return None
        inside = graph.between(number + 1, meet)
        ops = (i.what for n in inside if isinstance((i := code[n]).what, Op))
        ends = any(op.mnemonic == "exit" for op in ops)
        return None if ends else met_before(graph, number)

    def _synchronises(self, start: int, meet: int) -> bool:
        """Whether an instruction from one on up to a meeting point is one that others observe."""
        inside = (self.mir.code[n].what for n in self.code.graph.between(start, meet))
        return any(isinstance(op, Op) and op.synchronises for op in inside)

    def _goes_apart(self, number: int, target: int, meet: int) -> bool:
        """Whether the sides of a branch have no instruction in common."""
        graph = self.code.graph
        return graph.between(number + 1, meet).isdisjoint(graph.between(target, meet))

    def _close_loop(self, number: int, head: int) -> None:
        """The end of a counting loop, its way back and its test, as one step while all lanes agree.

        ``number``: the instruction that advances the counter, followed by the way back.
        """
        advance, test = self.mir.effects[number], self.mir.code[head].what
        match advance, test:
            case (
                (fx.Defines(Var(name) as var, Binary("+", Var(counter), Const(int() as by))),),
                Branch(cond=Binary("<" | ">" as op, Var(tested), stop), sense=False, target=end),
            ) if name == counter == tested:
                pass
            case _:
                return
        stop_of, slot = self.expr(stop), self.slot(var)
        if self.mir.typing.type_of(stop) != "s32":
            return
        slow, sync, cycles = self.code.steps[number]
        step = control.next_iteration(slow, slot, by, stop_of, head, end, rising=op == "<")
        self._fuse((step, sync, cycles), number, head)

    def _fuse_idle(self, heads: set[int]) -> None:
        """Instructions in a row whose results are not needed, as one step; each of the
        ``heads`` of polling loops is one of its own."""
        code = self.mir.code
        idle = (op.number for op in self.mir.ops() if op.number in self.code.idle)
        for row in stretches(n for n in idle if n not in heads and code[n].guard is None):
            entries = [self.code.alone[n] for n in row]
            ops = [op for n in row if isinstance(op := code[n].what, Op)]
            step = idle_row(self, ops, [(step, cycles > 0) for step, _, cycles in entries])
            self._fuse((step, False, sum(cycles for _, _, cycles in entries)), *row)

    def _fuse_assignments(self, heads: set[int]) -> None:
        """Assignments in a row as one step."""
        code = self.code
        fused = {number for row in code.rows for number in row}
        others = heads | fused | code.idle | code.stays.keys()
        for number, instruction in enumerate(self.mir.code):
            what, guard = instruction.what, instruction.guard
            if isinstance(what, Op) and guard is None and number not in others:
                found = assignment(what, self.mir.typing)
                if found is not None and found[0].name not in self.open.registers:
                    self._assignments[number] = found
        code.row = self._row
        for numbers in stretches(self._assignments):
            code.steps[numbers[0]] = self._row(numbers)

    def _row(self, numbers: tuple[int, ...]) -> Entry:
        """What these assignments do, as one step, which is the same for all uses."""
        known = self.code.rows.get(numbers)
        if known is not None:
            return known
        entries = [self.code.alone[number] for number in numbers]
        alone = [(step, cycles > 0) for step, _, cycles in entries]
        what = [self._assignments[number] for number in numbers]
        row = Row(what, alone, self.code.slots, self.mir.typing, self._put)
        made = row.step, False, sum(cycles for _, _, cycles in entries)
        self.code.rows[numbers] = made
        self.code.assigned.add(numbers)
        return made

    def _put(self, w: Warp, slot: int, value: Any) -> None:
        """A register of the active lanes, where not all of them are."""
        if slot in self.code.private and not w.machine.split_groups:
            w.registers[slot] = value
        else:
            assign(w, slot, value)

    def _fuse(self, entry: Entry, *numbers: int) -> None:
        """From now on the first of these instructions does what all of them do."""
        self.code.rows[numbers] = self.code.steps[numbers[0]] = entry
