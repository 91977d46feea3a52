"""Waits that are no instructions of SASS: scoreboards, in the control bits.

``tcgen05.wait::ld`` has no instruction: an ``LDTM`` raises a scoreboard, and what needs its result
waits for it. So do fences (``FENCE.VIEW.ASYNC``): they are done when their scoreboard is down. On
each path behind one, that scoreboard must be waited for before its registers are read or written,
and before a copy of what the PTX puts behind the wait, or behind the fence. Of several in one row
that access the same, only the last one raises it, as they are done in order.

Of a fence this is asked up to the end of a loop: ptxas has been seen not to wait for one on the way
back to the beginning, and what that costs is not known.

A commit of copies raises scoreboard 0, for which ``DEPBAR.LE SB0`` waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tilesim.cubin.control import Control, is_waited_for
from tilesim.cubin.operands import read, written
from tilesim.cubin.sass import Instruction
from tilesim.translation.subject import Subject
from tilesim.translation.validation import Difference

_LOAD = "tcgen05.ld"
_WAIT = "tcgen05.wait.ld"
#: fences that raise a scoreboard
_FENCES = frozenset({"fence.proxy.async", "tcgen05.wait.st"})
#: what hands memory on, or has another proxy or the tensor core access it
_AFTER = frozenset(
    {
        "mbarrier.arrive", "bar", "bar.arrive", "barrier.cluster.arrive", "bulk.load", "bulk.store",
        "bulk.peer", "bulk.reduce", "wgmma", "tcgen05.mma", "tcgen05.commit", "tcgen05.cp",
        "tcgen05.st", "tcgen05.shift", "st.release", "atom.release",
        "atom.acq_rel", "st.async",
    }
)  # fmt: skip
#: kinds of commits, and whether the scoreboard is that of what is written
_COMMITS = {"cp.async.commit": True, "bulk.commit": False}


def compare(subject: Subject, bits: Mapping[int, Control]) -> Iterator[Difference]:
    """Scoreboards that are not raised, or not waited for; ``bits`` by place, as of `controls`."""
    yield from _Scoreboards(subject, bits).differences()


class _Scoreboards:
    def __init__(self, subject: Subject, bits: Mapping[int, Control]) -> None:
        self._subject = subject
        self._sass = subject.translation.sass
        self._bits = bits
        kinds = subject.masks.kinds
        self._waits = sum(1 << n for n, kind in enumerate(kinds) if kind.name == _WAIT)
        self._behind = [
            event
            for event in subject.sass.copies.keys() & subject.ptx.copies.keys()
            if kinds[event].name in _AFTER and event not in subject.masks.relaxed
        ]

    def differences(self) -> Iterator[Difference]:
        """All of them."""
        for event, kind in enumerate(self._subject.masks.kinds):
            copies = self._subject.pairs[event][0].copies
            if kind.name in _COMMITS:
                yield from self._commits(event, copies, results=_COMMITS[kind.name])
            elif kind.name in _FENCES or kind.name == _LOAD:
                due = self._due(event, is_load=kind.name == _LOAD)
                for copy in copies:
                    yield from self._copy(event, copy, due)

    def _due(self, event: int, *, is_load: bool) -> frozenset[int]:
        """The places of what the PTX puts behind a fence, or behind a wait for a load."""
        found: set[int] = set()
        if event not in self._subject.ptx.copies:
            return frozenset()
        for other in self._behind:
            passed = self._subject.ptx.from_to(event, other)
            if passed is not None and (not is_load or passed & self._waits):
                found |= {copy.pc for copy in self._subject.pairs[other][0].copies}
        return frozenset(found)

    def _commits(
        self, event: int, copies: Collection[Instruction], *, results: bool
    ) -> Iterator[Difference]:
        for copy in copies:
            control = self._bits[copy.pc]
            if (control.write if results else control.read) != 0:
                yield self._difference(event, copy, "does not raise scoreboard 0")

    def _copy(self, event: int, copy: Instruction, due: Collection[int]) -> Iterator[Difference]:
        registers = {*written(copy)}
        scoreboard = self._bits[copy.pc].write
        seen: set[int] = set()
        todo = [(after, scoreboard) for after in self._sass.successors[copy.pc]]
        while todo:
            pc, raised = todo.pop()
            if pc in seen or (copy.base == "FENCE" and pc <= copy.pc):
                continue
            seen.add(pc)
            one = self._sass.code[pc]
            if raised is not None and is_waited_for(raised, one, self._bits[pc]):
                continue
            used = {*read(one), *(written(one) if one.base != copy.base else ())}
            if pc in due or not registers.isdisjoint(used):
                what = f"is not waited for by its scoreboard before {one} at {pc:#x}"
                yield self._difference(event, copy, what)
                return
            if raised is None and one.base == copy.base:
                raised = self._bits[pc].write
            todo += [(after, raised) for after in self._sass.successors[pc]]

    def _difference(self, event: int, copy: Instruction, what: str) -> Difference:
        line, kind = self._subject.events[event]
        return Difference(
            kind="scoreboard",
            rule="PTX 9.7.16.8.5"
            if kind == _LOAD
            else f"PTX {self._subject.masks.kinds[event].section}",
            effect="weaker",
            line=line,
            text=self._subject.text(event),
            sentence=f"PTX line {line} ({kind}): {copy.opcode} at {copy.pc:#x} {what}",
            pc=copy.pc,
            sass=str(copy),
            source=self._subject.source(event),
        )
