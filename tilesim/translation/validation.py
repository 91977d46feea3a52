"""What translation validation says of a kernel: what became of its synchronisation in SASS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tilesim.cubin.sass import SourceLine
from tilesim.records import dataclass

#: what became of a synchronising PTX instruction. ``merged``: another instruction does its work;
#: ``moved``: it is there, and a relation of it holds in another way; ``strengthened``: SASS waits
#: for more; ``deleted``: it had no effect; ``not shown in SASS``: it has no SASS of its own
Outcome = Literal[
    "kept", "merged", "moved", "strengthened", "deleted", "not shown in SASS", "lost", "undecided"
]
#: ``acquire``: an instruction before an access that it orders; ``release``: an access before an
#: instruction that it is ordered by; ``order``: two synchronising instructions
RelationKind = Literal["acquire", "release", "order"]
#: what a difference means for what was proved of the PTX: ``weaker`` is a finding
Effect = Literal["weaker", "stronger", "harmless"]


@dataclass(frozen=True)
class Translated:
    """What became of one synchronising PTX instruction.

    ``kind`` is a row of `tilesim.translation.classes`, ``line`` its line in the PTX (from 1) and
    ``text`` what stands there, ``pcs`` its copies in SASS (bytes from the function's beginning),
    ``why`` a sentence, mostly empty for ``kept``.
    """

    kind: str
    line: int
    text: str
    source: SourceLine | None
    outcome: Outcome
    pcs: tuple[int, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Inserted:
    """A synchronising SASS instruction that comes from no such PTX instruction: ``line`` is the one
    of the PTX that the line table gives, ``why`` says what it does there."""

    pc: int
    sass: str
    line: int | None
    why: str


@dataclass(frozen=True)
class Difference:
    """Something that the SASS does not do as the PTX says.

    ``kind`` and ``rule`` are short names: what differs (``lost``, ``order``, ``wait count``), and
    by which rule that is seen or explained. ``line`` and ``text`` are of the PTX, ``pc`` and
    ``sass`` of the SASS (None and empty: there is none). ``other`` are line and text of the second
    PTX instruction of a relation. ``sentence`` says all of it.
    """

    kind: str
    rule: str
    effect: Effect
    line: int
    text: str
    sentence: str
    pc: int | None = None
    sass: str = ""
    source: SourceLine | None = None
    other: tuple[int, str] | None = None


@dataclass(frozen=True)
class Undecided:
    """What could not be compared: an instruction of the PTX, or a relation of it, and why not.

    ``always``: it is so of every instruction of the kind, as SASS does not say it.
    """

    kind: str
    line: int
    text: str
    why: str
    always: bool = False


@dataclass(frozen=True)
class Relations:
    """How many relations of a kind the PTX has, by what became of them in SASS."""

    shown: int = 0
    explained: int = 0
    lost: int = 0
    undecided: int = 0


@dataclass(frozen=True)
class Validation:
    """The comparison of one kernel; ``kernel`` is its symbol.

    ``ptxas`` is the version that the cubin names (``13.0.88``), None if it names none. ``arch`` is
    that of the cubin. ``instructions`` are the synchronising ones of the PTX, in its order;
    ``executed`` says how many of them threads of both texts came to, whose values were compared,
    ``unreached`` how many they may not have come to because their steps are bounded.
    """

    kernel: str
    arch: str
    ptxas: str | None
    instructions: tuple[Translated, ...]
    inserted: tuple[Inserted, ...]
    relations: Mapping[RelationKind, Relations]
    differences: tuple[Difference, ...]
    undecided: tuple[Undecided, ...]
    executed: int = 0
    unreached: int = 0

    @property
    def findings(self) -> tuple[Difference, ...]:
        """The differences by which the SASS synchronises less than the PTX."""
        return tuple(one for one in self.differences if one.effect == "weaker")

    @property
    def outcomes(self) -> Mapping[Outcome, int]:
        """How many synchronising PTX instructions have each outcome."""
        found: dict[Outcome, int] = {}
        for one in self.instructions:
            found[one.outcome] = found.get(one.outcome, 0) + 1
        return found
