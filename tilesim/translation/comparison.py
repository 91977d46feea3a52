"""The synchronisation of a kernel in PTX against that in SASS: outcomes, relations, differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from tilesim.translation import classes, explanations
from tilesim.translation.pairing import never, text
from tilesim.translation.pairs import Pair
from tilesim.translation.relations import Relation, compare
from tilesim.translation.subject import Subject
from tilesim.translation.validation import (
    Difference,
    Effect,
    Inserted,
    Outcome,
    RelationKind,
    Relations,
    Translated,
    Undecided,
)

#: differences of relations that are listed for a kernel, at most, lost ones and others; all are
#: counted
MOST_LISTED = 64
_EFFECTS: Mapping[Outcome, Effect] = {"lost": "weaker", "strengthened": "stronger"}


class Comparison(Subject):
    """One kernel: what became of its synchronisation."""

    # ------------------------------------------------------------------ instructions

    @cached_property
    def instructions(self) -> tuple[Translated, ...]:
        """What became of each synchronising instruction."""
        return tuple(
            self._translated(event)
            for event, kind in enumerate(self.masks.kinds)
            if not kind.access
        )

    def _translated(self, event: int) -> Translated:
        pair = self.pairs[event][0]
        outcome: Outcome = "kept"
        why = ""
        if event not in self.sass.copies:
            outcome, why = explanations.without_sass(self, event)
        elif event in self._explained:
            outcome, why = "moved", self._explained[event]
        if not why and any(
            self.translation.sass.code[pc].ptx == pair.step.place.line for pc in self.selected
        ):
            why = "in a launch with clusters; without, ptxas selects another barrier, or none"
        return Translated(
            pair.kind,
            pair.step.place.line,
            self.text(event),
            self.source(event),
            outcome,
            tuple(copy.pc for copy in pair.copies),
            why,
        )

    @cached_property
    def merged(self) -> Mapping[int, Sequence[Pair]]:
        """By the number of an arrival, the ``expect_tx`` that ptxas has merged into it."""
        found: dict[int, list[Pair]] = {}
        for event, kind in enumerate(self.masks.kinds):
            if kind.access or event in self.sass.copies:
                continue
            arrival = explanations.merged_arrival(self, event)
            if arrival is not None and explanations.without_sass(self, event)[0] == "merged":
                found.setdefault(self.pairs[arrival][0].number, []).extend(self.pairs[event])
        return found

    # ------------------------------------------------------------------ relations

    @cached_property
    def _compared(self) -> tuple[Mapping[RelationKind, int], list[Relation]]:
        both = sum(1 << event for event in self.ptx.copies.keys() & self.sass.copies.keys())
        return compare(self.ptx, self.sass, self.masks, both)

    @cached_property
    def _judged(self) -> list[tuple[Relation, explanations.Judgement]]:
        missing: dict[int, set[int]] = {}
        for one in self._compared[1]:
            missing.setdefault(one.first, set()).add(one.second)
        return [(one, explanations.judge(self, one, missing)) for one in self._compared[1]]

    @cached_property
    def _explained(self) -> dict[int, str]:
        """By event, why relations of it may differ."""
        found: dict[int, str] = {}
        for relation, judged in self._judged:
            if judged.outcome == "explained":
                found.setdefault(relation.first, judged.why)
        return found

    @cached_property
    def relations(self) -> Mapping[RelationKind, Relations]:
        """How many relations there are of each kind, by what became of them."""
        found: dict[RelationKind, Relations] = {}
        for kind, count in self._compared[0].items():
            judged = [one.outcome for relation, one in self._judged if relation.kind == kind]
            found[kind] = Relations(
                count - len(judged),
                judged.count("explained"),
                judged.count("lost"),
                judged.count("undecided"),
            )
        return found

    # ------------------------------------------------------------------ findings

    def differences(self) -> Iterator[Difference]:
        """What is lost, and what differs in another way."""
        for event, kind in enumerate(self.masks.kinds):
            if kind.access or event in self.sass.copies:
                continue
            outcome, why = explanations.without_sass(self, event)
            if outcome in ("not shown in SASS", "undecided"):
                continue
            line = self.events[event][0]
            lost = outcome == "lost"
            effect = _EFFECTS.get(outcome, "harmless")
            sentence = (
                f"PTX line {line} ({kind.name}) has no SASS: {why}"
                if lost
                else f"PTX line {line} ({kind.name}) has no SASS of its own: {why}"
            )
            yield Difference(
                outcome, f"PTX {kind.section}", effect, line, self.text(event), sentence,
                source=self.source(event),
            )  # fmt: skip
        for wanted in ("lost", "explained"):
            listed = [entry for entry in self._judged if entry[1].outcome == wanted]
            for relation, judged in listed[:MOST_LISTED]:
                yield self._difference(relation, judged, lost=wanted == "lost")

    def _difference(
        self, relation: Relation, judged: explanations.Judgement, *, lost: bool
    ) -> Difference:
        first, second = relation.first, relation.second
        (line, kind), (other, other_kind) = self.events[first], self.events[second]
        copy = self.pairs[first][0].copies[0]
        where = {
            "before": f"executed before each {other_kind} of line {other} on every path",
            "between": f"executed between one {other_kind} of line {other} and the next one on "
            "every path",
            "after": f"executed after each {other_kind} of line {other} on every path",
            "never behind": f"on no path executed after {other_kind} of line {other}",
        }[relation.statement]
        found = "it is after that" if relation.statement == "never behind" else "a path has none"
        return Difference(
            relation.kind, judged.rule, "weaker" if lost else "harmless", line, self.text(first),
            f"PTX line {line} ({kind}) is {where}; in SASS {found}: {judged.why}",
            copy.pc, str(copy), self.source(first), (other, self.text(second)),
        )  # fmt: skip

    def undecided(self) -> Iterator[Undecided]:
        """What was not compared."""
        for event, kind in enumerate(self.masks.kinds):
            if kind.expanded and event in self.sass.copies:
                line = self.events[event][0]
                why = f"its order: {kind.expanded}"
                yield Undecided(kind.name, line, self.text(event), why, always=True)
        for relation, judged in self._judged:
            if judged.outcome == "undecided":
                line = self.events[relation.first][0]
                yield Undecided(relation.kind, line, self.text(relation.first), judged.why)
        opcodes: dict[str, int] = {}
        for step in self.translation.ptx.code:
            if classes.is_left_out(step.opcode):
                opcodes.setdefault(step.opcode, step.place.line)
        for opcode, line in opcodes.items():
            why = f"{opcode} is of no kind that is compared"
            yield Undecided("instruction", line, self.translation.text(line), why)
        gone = [
            event
            for event, kind in enumerate(self.masks.kinds)
            if kind.access
            and event in self.ptx.copies
            and event not in self.sass.copies
            and not explanations.is_elsewhere(self, event)
        ]
        if gone:
            line = self.events[gone[0]][0]
            yield Undecided(
                "access", line, self.text(gone[0]),
                f"{len(gone)} accesses to memory have no SASS of their own line (merged with "
                "others, or without effect): relations with them are not compared",
            )  # fmt: skip

    def inserted(self) -> Iterator[Inserted]:
        """Synchronising SASS that comes from no synchronising PTX."""
        code = self.translation.sass.code
        live = {self.sass.graph.text.nodes[node].place for node in self.sass.graph.live}
        kinds: dict[int, list[classes.Kind]] = {}
        for (line, _), kind in zip(self.events, self.masks.kinds, strict=True):
            kinds.setdefault(line, []).append(kind)
        for pc, one in code.items():
            if pc in self.paired or never(one) or not classes.SYNCHRONISES.match(text(one)):
                continue
            if pc in live or pc in self.reachable:
                why = explanations.why_inserted(one, kinds.get(one.ptx or 0, []))
                if why:
                    yield Inserted(pc, str(one), one.ptx, why)

    @cached_property
    def reachable(self) -> frozenset[int]:
        """The places that can be reached."""
        code = self.translation.sass.code
        return self.translation.sass.reached([next(iter(code))])
