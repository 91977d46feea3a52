"""Whether the next turn of a loop would record what its first turn has recorded.

Python runs the body of ``with k.loop(...)`` once. What it has changed by then (an element of a
list, an attribute, how far an iterator is) is what the second turn would begin with. So where
something has changed, the function of the kernel is run once more, with that put in place when it
enters the loop: the body has to come out as before. Names that are counted up, and counts of what
was recorded, change nothing in it; ``stages[state.index]`` and ``next(phases)`` do.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from types import FrameType
from typing import Any, NamedTuple, Protocol

from tilesim.errors import InvalidProgram, reject
from tilesim.ir.carried import carried
from tilesim.ir.expr import Base, Expr, ScalarParam, Var, named
from tilesim.ir.held import Held, Path, Step, is_value, put, reach
from tilesim.ir.loc import Loc, user_frames
from tilesim.ir.memory import Fragment, GlobalTensor, Mbarriers, SharedTensor, TensorMap
from tilesim.ir.op import Op

#: loops of one kernel that are looked at
_LOOPS = 64
#: what has a name in the kernel
_DECLARED = (Var, ScalarParam, GlobalTensor, SharedTensor, Mbarriers, TensorMap, Fragment)

#: the number of each name, and of what kind of declaration
Names = Mapping[str, tuple[str, int]]


class Declares(Protocol):
    """What records the kernel: the builder."""

    @property
    def declared(self) -> Mapping[str, object]:
        """What is declared so far, by name, in order."""
        ...

    @property
    def last(self) -> Any:
        """The statement that was recorded last."""
        ...

    turns: Turns


class Change(NamedTuple):
    """A value that a turn of a loop leaves different; ``gone``: it is not there any more."""

    path: Path
    step: Step
    before: Any
    after: Any
    gone: bool

    def __str__(self) -> str:
        place = _called(self.path, self.step)
        if self.step[0] == "iterator":
            return f"{place} is further after a turn of the loop than before it"
        if self.step[0] == "random":
            return f"{place} gives other numbers after a turn of the loop than before it"
        before, after = _said(self.before), _said(self.after)
        return f"{place} is {before} before a turn of the loop and {after} after it"


_ABSENT = object()


class Begun(NamedTuple):
    """A loop that is being recorded: its number, the functions and where they are, and `reach`."""

    number: int
    frames: list[tuple[FrameType, int]]
    before: dict[Path, Held]


@dataclass
class Turn:
    """One turn of a loop as it was recorded: the loop, and what changed meanwhile."""

    number: int
    changes: list[Change]
    loop: Any = None
    #: what comparable names stand for, see `_form`
    names: Names = field(default_factory=dict)


class _Enough(BaseException):
    """The loop that was to be recorded again is; passes what catches exceptions."""


@dataclass
class Turns:
    """The loops of one recording; ``again``: what is put in place when one of them begins."""

    again: Turn | None = None
    repeatable: bool = False
    changed: list[Turn] = field(default_factory=list)
    #: whether something of ``again`` could not be put in place
    partly: bool = False
    _count: int = 0

    def begins(self, builder: Declares) -> Begun | None:
        """The loop that begins, and what can be reached; None if nobody looks at its turns."""
        if not self.repeatable:
            return None
        self._count += 1
        if self.again is not None:
            if self.again.number == self._count:
                self._put(self.again.changes, builder)
                return Begun(self._count, [], {})
            return None
        if self._count > _LOOPS:
            return None
        frames = user_frames()
        return Begun(self._count, [(f, f.f_lasti) for f in frames], reach(frames))

    def ends(self, begun: Begun, builder: Declares) -> None:
        """Notes what the body has changed, when the loop has been recorded."""
        number, frames, before = begun
        names = _numbers(builder.declared)
        if self.again is not None:
            self.changed.append(Turn(number, [], builder.last, names))
            raise _Enough
        now = reach([frame for frame, _ in frames])
        changes = _changes(before, now, names, [carried(frame, start) for frame, start in frames])
        if changes:
            self.changed.append(Turn(number, changes, builder.last, names))

    def _put(self, changes: Iterable[Change], builder: Declares) -> None:
        held = reach(user_frames())
        by_path: dict[Path, list[Change]] = {}
        for change in changes:
            by_path.setdefault(change.path, []).append(change)
        for path, group in by_path.items():
            try:
                values = {c.step: _here(c.after, builder.declared) for c in group if not c.gone}
                put(held[path], values, {c.step for c in group if c.gone})
            except (LookupError, AttributeError, TypeError, ValueError):
                self.partly = True


def check_turns(first: Declares, record: Callable[[Turns], Declares]) -> None:
    """Rejects a kernel that would record something else in another turn of one of its loops.

    ``record``: runs the kernel's function with a new builder that has these turns.

    Raises:
        InvalidProgram: it says what changes, and what instruction depends on that.
    """
    for turn in first.turns.changed:
        if _differs(turn, turn.changes, record) is None:
            continue
        alone = (([c], _differs(turn, [c], record)) for c in turn.changes)
        whole = (turn.changes, _differs(turn, turn.changes, record))
        changes, loc = next((found for found in alone if found[1] is not None), whole)
        raise depends(changes[0], loc or turn.loop.loc)


def depends(change: Change, loc: Loc) -> InvalidProgram:
    """The error that something at ``loc`` is the same in all turns although it depends on this."""
    place = _called(change.path, change.step)
    if isinstance(change.before, int):
        keep = (f'let the kernel keep it: with `x = k.var("x", {int(change.before)})` in its '
                "place, `x += 1` and the like are executed in every turn; or ")  # fmt: skip
    else:
        keep = ""
    return reject(
        f"{change}, and this line depends on it: Python runs the body of a loop once, to record "
        "it, so that it is the same in every turn",
        loc,
        rule="region",
        fix=f"{keep}compute it from the loop's variable; or unroll the loop with Python's `for`; "
        f"or, if it is to be the same in all turns, set {place} in the loop before it is used",
    )


def _differs(turn: Turn, changes: list[Change], record: Callable[[Turns], Declares]) -> Loc | None:
    """Where the loop is recorded differently if it begins with these changes; None if nowhere."""
    again = Turns(Turn(turn.number, changes), repeatable=True)
    with redirect_stdout(io.StringIO()), suppress(Exception):
        try:
            record(again)
        except _Enough:
            pass
        except (StopIteration, LookupError, InvalidProgram):
            # the second turn would end the kernel
            return None if again.partly else turn.loop.loc
    if not again.changed:
        return None
    then = again.changed[-1]
    return _first_difference(_flat(turn.loop, turn.names), _flat(then.loop, then.names))


def _changes(
    before: dict[Path, Held],
    after: dict[Path, Held],
    names: Names,
    variables: list[frozenset[str]],
) -> list[Change]:
    """The values that differ, of the things that are there before and after.

    ``variables``: for each function, those whose values are carried from turn to turn.
    """
    found = []
    for path in before.keys() & after.keys():
        old, new = before[path].items, after[path].items
        for step in dict.fromkeys((*old, *new)):
            a, b = old.get(step, _ABSENT), new.get(step, _ABSENT)
            if a is b or (step[0] == "local" and step[1] not in variables[path[0][1]]):
                continue
            if _comparable(a) and _comparable(b) and _form(a, names) != _form(b, names):
                found.append(Change(path, step, a, b, b is _ABSENT))
    return sorted(found, key=lambda c: (len(c.path), str(c.path), str(c.step)))


def _comparable(value: object) -> bool:
    return value is _ABSENT or is_value(value)


# ------------------------------------------------------------------ what is recorded, compared


def _numbers(declared: Mapping[str, object]) -> Names:
    """What is the same in two recordings that differ in nothing but the names in a loop."""
    counts: dict[str, int] = {}
    numbers = {}
    for name, thing in declared.items():
        kind = type(thing).__name__
        numbers[name] = kind, counts.get(kind, 0)
        counts[kind] = counts.get(kind, 0) + 1
    return numbers


def _form(value: Any, names: Names) -> Any:
    """A value, a statement or an operand, with declarations told apart by their numbers."""
    if isinstance(value, tuple):
        return tuple(_form(item, names) for item in value)
    if isinstance(value, (*_DECLARED, Base)) and value.name in names:
        return type(value).__name__, names[value.name]
    if _is_of_tilesim(value) and not isinstance(value, int):
        if not is_dataclass(value) or isinstance(value, type):
            return id(value)
        shown = (getattr(value, f.name) for f in fields(value) if not f.metadata.get("label"))
        parts = (_form(part, names) for part in shown if not isinstance(part, Loc))
        return (type(value).__name__, *parts)
    return type(value).__name__, repr(value)


def _is_of_tilesim(value: object) -> bool:
    return type(value).__module__.startswith("tilesim.")


def _flat(statement: Any, names: Names) -> list[tuple[Any, Loc]]:
    """The form of each statement in a loop, with its line; nested ones follow."""
    found: list[tuple[Any, Loc]] = []
    for one in _statements(statement):
        if isinstance(one, Op):
            found.append((_form(one, names), one.loc))
        else:
            head = [
                _form(getattr(one, f.name), names) for f in fields(one)
                if f.name not in ("body", "then", "orelse", "loc")
            ]  # fmt: skip
            sizes = [len(getattr(one, name, ())) for name in ("body", "then", "orelse")]
            found.append(((type(one).__name__, head, sizes), one.loc))
    return found


def _statements(statement: Any) -> Iterator[Any]:
    yield statement
    for name in ("body", "then", "orelse"):
        for inner in getattr(statement, name, ()) if not isinstance(statement, Op) else ():
            yield from _statements(inner)


def _first_difference(one: list[tuple[Any, Loc]], other: list[tuple[Any, Loc]]) -> Loc | None:
    # what a loop contains is compared one by one, so that the line is that of the instruction
    for (a, loc), (b, _) in zip(one, other, strict=False):
        if a != b and not (
            isinstance(a[-1], list) and isinstance(b[-1], list) and a[:-1] == b[:-1]
        ):
            return loc
    longer = one if len(one) > len(other) else other
    return longer[min(len(one), len(other))][1] if len(one) != len(other) else None


def _here(value: Any, declared: Mapping[str, object]) -> Any:
    """A value of one recording as that of another one, whose declarations these are.

    Raises:
        LookupError: it has no such declaration.
    """
    if isinstance(value, tuple):
        items = [_here(item, declared) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, _DECLARED):
        return declared[value.name]
    if not _is_of_tilesim(value):
        return value
    if not is_dataclass(value) or isinstance(value, type):
        raise LookupError(f"{type(value).__name__} belongs to one recording")
    held = {f.name: getattr(value, f.name) for f in fields(value)}
    moved = {name: _here(part, declared) for name, part in held.items()}
    if all(moved[name] is part for name, part in held.items()):
        return value
    other = copy.copy(value)
    for name, part in moved.items():
        object.__setattr__(other, name, part)
    return other


# ------------------------------------------------------------------ words


def _called(path: Path, step: Step) -> str:
    """How Python calls a place: ``state.phases[0]``."""
    text = ""
    for kind, name in (*path[1:], step):
        match kind:
            case "local" | "cell" | "global":
                text = str(name)
            case "item":
                text += f"[{name!r}]"
            case "attr":
                text += f".{name}"
    return text.lstrip(".") or "a variable"


def _said(value: object) -> str:
    if value is _ABSENT:
        return "not there"
    return str(value) if isinstance(value, Expr) else named(value)
