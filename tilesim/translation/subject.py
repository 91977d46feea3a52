"""A kernel in PTX and in SASS as events, and what the paths of both texts pass."""

from __future__ import annotations

from collections.abc import Mapping

from tilesim.cubin.sass import Instruction, SourceLine
from tilesim.translation import classes, guards, predicates
from tilesim.translation.flow import of_clusters, ptx_text, sass_text
from tilesim.translation.pairing import Event
from tilesim.translation.pairs import Pair, Translation
from tilesim.translation.relations import Facts, Masks

#: of a load or store of tensor memory that ptxas makes two of, the second one
_SECOND_HALF = "_t16_t31"


class Subject:
    """One kernel. Events are numbered in the order of the PTX."""

    def __init__(self, translation: Translation) -> None:
        self.translation = translation
        pairs: dict[Event, list[Pair]] = {}
        for pair in translation.pairs:
            pairs.setdefault((pair.step.place.line, pair.kind), []).append(pair)
        self.pairs = [*pairs.values()]
        self.events: list[Event] = [*pairs]
        relaxed = [
            event
            for event, same in enumerate(self.pairs)
            if not any(classes.hands_on(pair.step.opcode) for pair in same)
        ]
        self.masks = Masks(self.events, relaxed)
        every = (1 << len(self.events)) - 1
        at_number: dict[int, list[int]] = {}
        at_pc: dict[int, list[int]] = {}
        for event, same in enumerate(self.pairs):
            for pair in same:
                at_number.setdefault(pair.number, []).append(event)
            for copy in same[0].copies:
                if _SECOND_HALF in copy.opcode:
                    continue
                at_pc.setdefault(copy.pc, []).append(event)
        kernel, function = translation.ptx, translation.sass
        decided = predicates.ptx_unified(kernel, guards.ptx_conditions(kernel))
        self.ptx = Facts(ptx_text(kernel, at_number, decided), every)
        conditions = predicates.unified(function, guards.sass_conditions(function))
        clusters = {line for line, kind in self.events if kind.startswith("barrier.cluster.")}
        waits = [pc for pc, one in function.code.items() if one.base == "WARPGROUP"]
        self.selected = of_clusters(function, clusters)
        self.sass = Facts(sass_text(function, at_pc, conditions, self.selected, waits), every)
        self.paired = frozenset(copy.pc for pair in translation.pairs for copy in pair.copies)

    def text(self, event: int) -> str:
        """The PTX of an event."""
        return self.translation.text(self.events[event][0])

    def source(self, event: int) -> SourceLine | None:
        """The line of the source, as the SASS or the PTX says."""
        pair = self.pairs[event][0]
        for copy in pair.copies:
            if copy.lines and copy.ptx == pair.step.place.line:
                return copy.lines[0]
        located = pair.step.located
        if located is None:
            return None
        file = self.translation.ptx.files.get(located.file)
        return SourceLine(file, located.line) if file else None


def copies(function: Mapping[int, Instruction], found: Mapping[int, list[Event]]) -> dict[
    Event, tuple[Instruction, ...]
]:  # fmt: skip
    """By event, the SASS instructions that are copies of it."""
    by_event: dict[Event, list[Instruction]] = {}
    for pc, events in sorted(found.items()):
        for event in events:
            by_event.setdefault(event, []).append(function[pc])
    return {event: tuple(places) for event, places in by_event.items()}
