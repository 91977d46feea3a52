"""The values that a register can have at a place: all of them, or None where too many are possible.

A value is followed back through what wrote it (`value_graph`), as the terms that instructions
compute (`arithmetic`). Where all that a term depends on has few values it is computed for each
combination, with the conditions of the branches that lead there; else the bits that are known are
followed. What meets in a loop is taken to a fixpoint. Registers are those of one thread: what a
uniform register holds is what the thread whose path is followed has put there.

What is returned contains every value that the register can have, when nvdisasm's text means what
`arithmetic` says, the caller's values are right, and the code is that of `Function`. One thing is
taken for granted: a counter that begins below 2^30, and goes up by less than 2^16 at a time, does
not come to 2^30. What the caller knows must hold for each thread of the warp: votes, shuffles and
``R2UR`` bring values from one thread to another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import product
from typing import Literal

from tilesim.cubin.arithmetic import (
    ANY,
    BOOLEAN,
    Bits,
    Term,
    below,
    bits,
    both,
    constant,
    exactly,
    negated,
    number,
    read,
    reads,
    signed,
    source,
)
from tilesim.cubin.low_bits import Linear, linear
from tilesim.cubin.operands import WORD, mbarrier_operand
from tilesim.cubin.sass import Function
from tilesim.cubin.value_graph import (
    FIRST,
    TURNS,
    Asked,
    Condition,
    Known,
    Node,
    OfSome,
    Plan,
    Turns,
    ValueGraph,
    is_predicate,
)
from tilesim.cubin.values import (
    MOST_COMBINATIONS,
    MOST_VALUES,
    Values,
    as_set,
    below_unknown,
    bits_of,
    join,
    values_of,
)
from tilesim.cubin.versions import Meeting
from tilesim.records import dataclass

#: what a counter that goes up comes to at most, see above
MOST_COUNTED = (1 << 30) - 1
_MOST_STEP = (1 << 16) - 1
#: rounds of a fixpoint
_MOST_ROUNDS = 200
#: nodes that one question may lead to
_MOST_VERSIONS = 20_000


class ValueSets:
    """The values of a function's registers, with what the caller knows."""

    def __init__(self, function: Function, known: Known | None = None) -> None:
        """``known`` is asked first for all that is read at a place; it must give each value that
        can be there, in the threads that the caller has in mind."""
        self.function = function
        self._graph = ValueGraph(function, known)
        self._plans = self._graph.plans
        self._solved: dict[Node, Values] = {}
        self._current: dict[Node, Values] = {}
        #: predicates that hold, or do not, where a question is answered
        self._assumed: dict[Node, bool] = {}
        self._meets: dict[Node, list[tuple[Node, list[Condition]]]] = {}

    # ------------------------------------------------------------------ questions

    def value(self, register: str, pc: int) -> frozenset[int] | None:
        """The values that a register or predicate can have just before the instruction at ``pc``
        in a thread that executes it; None: more than 64, or nothing leads there."""
        return self.term(read(register), pc)

    def address(self, pc: int) -> frozenset[int] | None:
        """The addresses of the mbarrier that the instruction at ``pc`` works on, as `value`; None
        if it works on none."""
        operand = mbarrier_operand(self.function.code[pc])
        if operand is None:
            return None
        parts = [read(name) for name in operand.registers]
        return self.term(Term("add", (*parts, constant(operand.offset))), pc)

    def term(self, term: Term, pc: int) -> frozenset[int] | None:
        """The values of a term at a place, as `value`."""
        if self.function.unknown or self._graph.versions.version("R0", pc) is None:
            return None
        asked = Asked(term, pc)
        conditions = self._graph.conditions_at(pc)
        guard = source(self.function.code[pc].guard) if self.function.code[pc].guard else None
        if guard is not None:
            conditions = [Condition(self._graph.add(Asked(guard, pc)), True), *conditions]
        if not self._solve([asked, *(one.node for one in conditions)]):
            return None
        self._assumed = {self._copied(one.node): one.holds for one in conditions}
        found = self._under(asked, conditions)
        self._assumed = {}
        narrowed = self._narrowed(asked, conditions, {})
        if isinstance(found, frozenset) and isinstance(narrowed, frozenset):
            return found & narrowed
        return next((one for one in (found, narrowed) if isinstance(one, frozenset)), None)

    # ------------------------------------------------------------------ fixpoint

    def _solve(self, roots: Iterable[Node]) -> bool:
        """Finds the values of nodes and of all that they need; False if that is too much."""
        needs: dict[Node, list[Node]] = {}
        todo = [self._graph.add(root) for root in roots]
        while todo:
            node = todo.pop()
            if node in needs or node in self._solved:
                continue
            if self._graph.meets_at(node):
                met = self._meets.get(node)
                if met is None:
                    met = self._meets[node] = self._graph.met(node)
                needs[node] = [
                    each for one, conditions in met for each in (one, *(c.node for c in conditions))
                ]
            elif isinstance(node, OfSome):
                needs[node] = [self._graph.add(node.asked), self._graph.add(node.guard)]
            else:
                needs[node] = list(self._plans[node].sources.values())
            todo += needs[node]
            if len(needs) > _MOST_VERSIONS:
                return False
        for group in _components(needs):
            self._fixpoint(group)
        return True

    def _fixpoint(self, group: list[Node]) -> None:
        """The values of nodes that need each other, of which all others are known."""
        for node in group:
            self._current[node] = frozenset()
        counters = self._counters(group)
        for _ in range(_MOST_ROUNDS):
            changed = False
            for node in group:
                old = self._current[node]
                new = join(old, self._transfer(node))
                if self._graph.meets_at(node) and isinstance(new, Bits):
                    new = below_unknown(new)
                if isinstance(new, Bits) and node in counters:
                    new = Bits(new.zeros | ~MOST_COUNTED & WORD, new.ones & MOST_COUNTED)
                changed |= new != old
                self._current[node] = new
            if not changed:
                break
        else:
            for node in group:
                self._current[node] = as_set(BOOLEAN) if is_predicate(node) else ANY
        for node in group:
            self._solved[node] = self._current.pop(node)

    def _counters(self, group: list[Node]) -> frozenset[Node]:
        """The nodes of those that need each other that are counters, which begin at small numbers
        and go up by small ones; all that are no predicates, or none."""
        turns = frozenset(node for node in group if isinstance(node, Turns))
        inside = {
            node for node in group
            if not (is_predicate(node) or isinstance(node, Asked) or node in turns)
        }  # fmt: skip
        for node in inside:
            plan = self._plans[node]
            if self._graph.meets_at(node):
                starts = [one for one, _ in self._meets[node] if one not in inside]
            elif plan.term is None or self._rising(plan.term, plan, inside) is None:
                return turns
            else:
                starts = [one for name, one in plan.sources.items() if name == FIRST]
            if not all(one in inside or self._bits(one).most <= MOST_COUNTED for one in starts):
                return turns
        return turns | inside

    def _rising(self, term: Term, plan: Plan, inside: Collection[Node]) -> int | None:
        """How many of the nodes inside a term adds small numbers to; None if it does not do so."""
        if term.op == "constant":
            return 0 if term.number <= _MOST_STEP else None
        if term.op == "read":
            source = plan.sources[term.name]
            if source in inside:
                return 1
            known = isinstance(source, Turns) or term.name == FIRST
            return 0 if known or self._bits(source).most <= _MOST_STEP else None
        parts = term.of[1:] if term.op == "select" else term.of
        counts = [self._rising(part, plan, inside) for part in parts]
        found = [count for count in counts if count is not None]
        if len(found) < len(counts) or term.op not in ("add", "mul", "select"):
            return None
        if term.op == "select":
            return max(found)
        total = sum(found)
        if term.op == "mul":  # of turns of a loop, or small
            of_turns = any(part.op == "read" and part.name == TURNS for part in parts)
            of_sources = {name: self._bits(one) for name, one in plan.sources.items()}
            small = of_turns or bits(term, of_sources).most <= _MOST_STEP
            return 0 if small and not total else None
        return total if total <= 1 else None

    def _values(self, node: Node) -> Values:
        found = self._current.get(node)
        return self._solved[node] if found is None else found

    def _transfer(self, node: Node) -> Values:
        if self._graph.meets_at(node):
            found: Values = frozenset()
            for one, conditions in self._meets[node]:
                found = join(found, self._under(one, conditions))
            return found
        if isinstance(node, OfSome):
            return self._under(node.asked, [Condition(node.guard, True)])
        plan = self._plans[node]
        return plan.opaque if plan.term is None else self._under(node, [])

    def _under(self, node: Node, conditions: list[Condition]) -> Values:
        """The values of a node where conditions hold."""
        for count in range(len(conditions), -1, -1):
            held = conditions[:count]
            found = self._combined(node, held)
            if found is not None:
                return found
        plan = self._plans[node]
        if plan.term is None or (node in self._solved and not conditions):
            return self._limited(node, self._values(node), conditions)
        sources = {name: self._values(source) for name, source in plan.sources.items()}
        if any(not one for one in sources.values() if isinstance(one, frozenset)):
            return frozenset()
        few = self._by_remainders(node)
        if few is None:
            few = self._by_low_bits(node)
        if few is None:
            few = self._by_arms(plan)
        if few is not None:
            return few
        return self._narrowed(node, conditions, {})

    def _narrowed(
        self, node: Node, conditions: list[Condition], done: dict[Node, Values]
    ) -> Values:
        """The values of a node where conditions hold, from those of what it reads there, each for
        itself."""
        found = done.get(node)
        if found is None:
            plan = self._plans[node]
            if plan.term is None or (node in self._solved and not conditions):
                found = self._values(node)
            else:
                sources = plan.sources.items()
                known = {n: self._narrowed(one, conditions, done) for n, one in sources}
                found = values_of(plan.term, known)
            found = done[node] = self._limited(node, found, conditions)
        return found

    def _by_arms(self, plan: Plan) -> Values | None:
        """The values of a term that chooses one of two registers by a predicate."""
        term = plan.term
        if (
            term is None
            or term.op != "select"
            or any(part.op == "constant" for part in term.of[:1])
        ):
            return None
        found: Values = frozenset()
        predicate_of, sign = _plain(term.of[0])
        if predicate_of is None:
            return None
        for arm, holds in ((term.of[1], True), (term.of[2], False)):
            if arm.op == "constant":
                found = join(found, frozenset({arm.number}))
                continue
            if arm.op != "read":
                return None
            condition = Condition(plan.sources[predicate_of], holds != sign)
            source = plan.sources[arm.name]
            found = join(found, self._limited(source, self._values(source), [condition]))
        return found

    def _limited(self, node: Node, values: Values, conditions: list[Condition]) -> Values:
        """Values of a node of which conditions compare it with a number."""
        whole = self._copied(node)
        for one in conditions:
            if isinstance(values, frozenset):
                break
            plan, holds = self._plans[self._copied(one.node)], one.holds
            term = plan.term
            while term is not None and term.op == "lut" and len(term.of) == 3:
                inner = term.of[0]
                if term == both(inner, constant(1)):
                    term = inner
                elif term == negated(inner):
                    term, holds = inner, not holds
                else:
                    break
                if term.op == "read":
                    plan = self._plans[self._copied(plan.sources[term.name])]
                    term = plan.term
            if (
                term is None
                or term.op not in ("compare", "compare_signed")
                or term.of[0].op != "read"
            ):
                continue
            limit = self._only(term.of[1], plan)
            if limit is None or self._copied(plan.sources[term.of[0].name]) != whole:
                continue
            if term.op == "compare_signed" and (limit >> 31 or self._bits(whole).most >> 31):
                continue
            how = term.name if holds else _OPPOSITE[term.name]
            most = {"LT": limit - 1, "LE": limit, "EQ": limit}.get(how)
            if most is None:
                continue
            if most < 0:
                return frozenset()
            low = values.zeros, values.ones
            small = below(most + 1)
            values = as_set(Bits(low[0] | small.zeros, low[1]))
            if isinstance(values, frozenset):
                values = frozenset(value for value in values if value <= most)
        return values

    def _combined(self, node: Node, conditions: list[Condition]) -> Values | None:
        """The values of a node, computed for each combination of those that it depends on where the
        conditions hold; None if these are too many."""
        roots = [node, *(one.node for one in conditions)]
        kinds: dict[Node, _Kind] = {}
        if self._plans[node].term is not None and node not in self._solved:
            for source in self._plans[node].sources.values():
                self._kind(source, kinds)
            kinds[node] = "inner"  # its own values are what is asked
        leaves: dict[Node, tuple[int | None, ...]] = {}
        inner: list[Node] = []
        for root in roots:
            self._kind(root, kinds)
            self._gather(root, kinds, leaves, inner)
        combinations = 1
        for values in leaves.values():
            combinations *= len(values)
        if combinations > MOST_COMBINATIONS:
            return None
        steps = [(one, self._plans[one]) for one in inner]
        found: set[int] = set()
        for chosen in product(*leaves.values()):
            at: dict[Node, int | None] = dict(zip(leaves, chosen, strict=True))
            for one, plan in steps:
                assert plan.term is not None
                at[one] = number(plan.term, {n: at[s] for n, s in plan.sources.items()})
            if all(at[one.node] in (None, one.holds) for one in conditions):
                value = at[node]
                if value is None:
                    return None
                found.add(value)
        return frozenset(found) if len(found) <= MOST_VALUES else bits_of(found)

    def _kind(self, node: Node, kinds: dict[Node, _Kind]) -> _Kind:
        """How a node is computed for combinations of values."""
        known = kinds.get(node)
        if known is not None:
            return known
        plan = self._plans[node]
        kind: _Kind = "many"
        if plan.term is not None and plan.depth:
            inside = [self._kind(source, kinds) for source in plan.sources.values()]
            kind = "partly" if {"many", "partly"} & {*inside} else "inner"
        if kind != "inner" and isinstance(self._values(node), frozenset):
            kind = "leaf"
        kinds[node] = kind
        return kind

    def _gather(
        self,
        node: Node,
        kinds: Mapping[Node, _Kind],
        leaves: dict[Node, tuple[int | None, ...]],
        inner: list[Node],
    ) -> None:
        """Leaves and inner nodes of a node, each inner one behind what it reads."""
        todo, seen = [(node, False)], {*leaves, *inner}
        while todo:
            one, done = todo.pop()
            if done:
                inner.append(one)
            elif one not in seen:
                seen.add(one)
                if kinds[one] in ("inner", "partly"):
                    todo.append((one, True))
                    todo += [(source, False) for source in self._plans[one].sources.values()]
                else:
                    values = self._values(one)
                    few = kinds[one] == "leaf" and isinstance(values, frozenset)
                    leaves[one] = tuple(sorted(values)) if few else (None,)

    # ------------------------------------------------------------------ remainders

    def _by_remainders(self, node: Node) -> Values | None:
        """The values of a sum in which what has many values is ``x - c * (x / c)``, or a multiple
        of it: as compilers take remainders of a division by a number that they know."""
        form = self._sum_of(node)
        if node in form.times:
            return None
        parts: list[tuple[int, int]] = []  # times, below
        for one in [*form.times]:
            times = form.times.get(one, 0)
            if not times or isinstance(self._values(one), frozenset):
                continue
            quotient = self._quotient(one)
            if quotient is None:
                continue
            whole, divisor = quotient
            multiple = -signed(times)
            if multiple % divisor or not 2 <= divisor <= MOST_VALUES:
                continue
            multiple //= divisor
            rest = form.plus(self._sum_of(whole), -multiple).without(one)
            if self._many(rest) < self._many(form.without(one)):
                form = rest
                parts.append((multiple, divisor))
        few: list[list[int]] = [[multiple * n for n in range(by)] for multiple, by in parts]
        combinations = 1
        for one, times in form.times.items():
            values = self._values(one)
            if not isinstance(values, frozenset):
                return None
            few.append([times * value for value in values])
        for each in few:
            combinations *= len(each)
        if combinations > MOST_COMBINATIONS:
            return None
        found = {form.number + sum(chosen) & WORD for chosen in product(*few)}
        return frozenset(found) if len(found) <= MOST_VALUES else bits_of(found)

    def _many(self, form: _Form) -> int:
        """How many parts of a sum have many values."""
        return sum(not isinstance(self._values(one), frozenset) for one in form.times)

    def _sum_of(self, node: Node) -> _Form:
        """A node as a sum of multiples of nodes, and a number."""
        node = self._copied(node)
        plan = self._plans[node]
        values = self._solved.get(node)
        if isinstance(values, frozenset):
            if len(values) == 1:
                return _Form({}, min(values))
            return _Form({node: 1}, 0)
        if plan.term is None or not plan.depth:
            return _Form({node: 1}, 0)
        term = self._term(node)
        return (term and self._form(term, plan)) or _Form({node: 1}, 0)

    def _form(self, term: Term, plan: Plan) -> _Form | None:
        """A term as such a sum; None if it is none."""
        if term.op == "constant":
            return _Form({}, term.number)
        if term.op == "read":
            return self._sum_of(plan.sources[term.name])
        if term.op == "select":
            name, opposite = _plain(term.of[0])
            yes, no = (self._form(part, plan) for part in term.of[1:])
            if name is None or yes is None or no is None:
                return None
            yes, no = (no, yes) if opposite else (yes, no)
            more = yes.plus(no, -1)  # where the predicate is true
            chosen = _Form({plan.sources[name]: more.number}, 0)
            return None if more.times else no.plus(chosen, 1)
        if term.op not in ("add", "mul", "shl", "not"):
            return None
        of = [self._form(part, plan) for part in term.of]
        forms = [one for one in of if one is not None]
        if len(forms) != len(of):
            return None
        if term.op == "add":
            total = forms[0]
            for other in forms[1:]:
                total = total.plus(other, 1)
            return total
        if term.op == "not":
            return _Form({}, WORD).plus(forms[0], -1)
        if term.op == "shl":
            by = forms[1].number
            return None if forms[1].times or by > 31 else _Form({}, 0).plus(forms[0], 1 << by)
        for one, other in (forms, forms[::-1]):
            if not other.times:
                return _Form({}, 0).plus(one, other.number)
        return None

    def _quotient(self, node: Node) -> tuple[Node, int] | None:
        """What a node is the quotient of, rounded down, and the divisor, for each dividend of 32
        bits: the high half of a product with 2^(32+n) / divisor, rounded up, shifted right by n
        (Granlund, Montgomery: Division by Invariant Integers using Multiplication, theorem 4.2).
        """
        node, shift = self._copied(node), 0
        plan, term = self._plans[node], self._term(node)
        arithmetic = term is not None and term.op == "sar"
        if term is not None and term.op in ("shr", "sar") and term.of[0].op == "read":
            if term.of[1].op != "constant":
                return None
            shift = term.of[1].number
            node = self._copied(plan.sources[term.of[0].name])
            plan, term = self._plans[node], self._term(node)
        zero = constant(0)
        if term is None or not term.op.startswith("high") or term.of[2:] != (zero, zero):
            return None
        for one, factor in (term.of[:2], term.of[1::-1]):
            by = self._only(factor, plan)
            if one.op != "read" or not by:
                continue
            whole = plan.sources[one.name]
            is_signed = term.op == "high_signed"
            if is_signed and self._bits(whole).most >> 31:
                continue
            if by >> 31 and (is_signed or arithmetic):  # the product may have a sign
                continue
            power = 1 << 32 + shift
            divisor = -(-power // by)
            # of 31 bits the product may be off by twice as much
            if power <= by * divisor <= power + (1 << shift + is_signed):
                return whole, divisor
        return None

    def _only(self, term: Term, plan: Plan) -> int | None:
        """The value of a number, or of a register that has one alone."""
        if term.op == "constant":
            return term.number
        if term.op != "read":
            return None
        values = self._values(plan.sources[term.name])
        return min(values) if isinstance(values, frozenset) and len(values) == 1 else None

    def _copied(self, node: Node) -> Node:
        """What a node is a copy of, but for what is added and is known to be 0."""
        while True:
            plan = self._plans[node]
            term = self._term(node)
            if term is not None and term.op == "add":
                known = {name: self._bits(source) for name, source in plan.sources.items()}
                parts = [part for part in term.of if bits(part, known) != exactly(0)]
                term = parts[0] if len(parts) == 1 else None
            if term is None or term.op != "read":
                return node
            node = plan.sources[term.name]

    def _term(self, node: Node) -> Term | None:
        """The term of a node; of one that a predicate chooses, that which is chosen if the
        predicate is assumed."""
        plan = self._plans[node]
        term = plan.term
        if term is not None and term.op == "select" and self._assumed:
            name, opposite = _plain(term.of[0])
            holds = None if name is None else self._assumed.get(self._copied(plan.sources[name]))
            if holds is not None:
                return term.of[1 if holds != opposite else 2]
        return term

    def _bits(self, node: Node) -> Bits:
        values = self._values(node)
        if isinstance(values, Bits) and self._assumed:
            plan, term = self._plans[node], self._term(node)
            if term is not None and term != plan.term:
                return bits(term, {name: self._bits(plan.sources[name]) for name in reads(term)})
        return values if isinstance(values, Bits) else bits_of(values)

    # ------------------------------------------------------------------ low bits

    def _by_low_bits(self, node: Node) -> Values | None:
        """The values of a term that depends on one node with many values, and on its low bits
        alone: ``x - (x + 3 & ~3)``. All others that it depends on must have few values."""
        found = self._by_low_bits_of(node, counters=True)
        return self._by_low_bits_of(node, counters=False) if found is None else found

    def _by_low_bits_of(self, node: Node, *, counters: bool) -> Values | None:
        """As `_by_low_bits`, of a counter or of how many turns it has taken."""
        steps: list[Node] = []
        few: dict[Node, frozenset[int]] = {}
        many: set[Node] = set()
        todo, seen = [(node, False)], set[Node]()
        while todo:
            one, done = todo.pop()
            if done:
                steps.append(one)
                continue
            if one in seen:
                continue
            seen.add(one)
            values = self._values(one)
            plan = self._plans[one]
            if one != node and isinstance(values, frozenset):
                few[one] = values
            elif plan.term is None or (
                one != node and (not plan.depth or (counters and isinstance(one, Meeting)))
            ):
                many.add(one)
            else:
                todo.append((one, True))
                todo += [(source, False) for source in plan.sources.values()]
        if len(many) != 1:
            return None
        (whole,) = many
        combinations = 1
        for values in few.values():
            combinations *= len(values)
        low = min(6, (MOST_COMBINATIONS // combinations).bit_length() - 1)
        if low < 1:
            return None
        known = self._bits(whole)
        found: set[int] = set()
        names = list(few)
        for bottom in range(1 << low):
            if bottom & known.zeros or ~bottom & known.ones & (1 << low) - 1:
                continue
            for chosen in product(*(sorted(few[name]) for name in names)):
                at: dict[Node, Linear] = {n: (0, v, 32) for n, v in zip(names, chosen, strict=True)}
                at[whole] = (1, bottom, 32)
                for step in steps:
                    plan = self._plans[step]
                    assert plan.term is not None
                    inside = {n: at[s] for n, s in plan.sources.items()}
                    value = linear(plan.term, inside, low)
                    if value is None:
                        return None
                    at[step] = value
                times, value_at, width = at[node]
                if times or width < 32:
                    return None
                found.add(value_at)
        return frozenset(found) if len(found) <= MOST_VALUES else bits_of(found)


_OPPOSITE = {"LT": "GE", "GE": "LT", "LE": "GT", "GT": "LE", "EQ": "NE", "NE": "EQ"}
#: by its term, all of what it depends on with few values, or not all; by its own few values; not
_Kind = Literal["inner", "partly", "leaf", "many"]


def _plain(term: Term) -> tuple[str | None, bool]:
    """The predicate that a term reads, and whether it is its opposite; None if it is neither."""
    if term.op == "read":
        return term.name, False
    if term.op == "lut" and term == negated(term.of[0]):
        name, sign = _plain(term.of[0])
        return name, not sign
    return None, False


@dataclass(frozen=True)
class _Form:
    """The sum of multiples of nodes, and a number, modulo 2^32."""

    times: Mapping[Node, int]
    number: int

    def plus(self, other: _Form, factor: int) -> _Form:
        """This, and another one so many times."""
        times = dict(self.times)
        for one, count in other.times.items():
            times[one] = times.get(one, 0) + factor * count & WORD
        kept = {one: count for one, count in times.items() if count}
        return _Form(kept, self.number + factor * other.number & WORD)

    def without(self, node: Node) -> _Form:
        """This without the multiples of a node."""
        return _Form({one: n for one, n in self.times.items() if one != node}, self.number)


def _components(needs: Mapping[Node, list[Node]]) -> Iterable[list[Node]]:
    """Nodes that need each other, each group behind those that it needs (Tarjan)."""
    numbers: dict[Node, int] = {}
    lowest: dict[Node, int] = {}
    path: list[Node] = []
    on_path: set[Node] = set()
    for root in needs:
        if root in numbers:
            continue
        stack = [(root, 0)]
        while stack:
            node, at = stack.pop()
            if node not in numbers:
                numbers[node] = lowest[node] = len(numbers)
                path.append(node)
                on_path.add(node)
            entered = False
            for place in range(at, len(needs[node])):
                other = needs[node][place]
                if other not in needs:  # solved before
                    continue
                if other not in numbers:
                    stack += [(node, place), (other, 0)]
                    entered = True
                    break
                if other in on_path:
                    lowest[node] = min(lowest[node], lowest[other])
            if entered:
                continue
            if lowest[node] == numbers[node]:
                group: list[Node] = []
                while not group or group[-1] != node:
                    group.append(path.pop())
                    on_path.discard(group[-1])
                yield group
