"""Promela statements as a tree, so that what turns out to be unused can be left out."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.records import dataclass


@dataclass(frozen=True)
class Action:
    """One statement; ``sets`` is the local variable that is all it changes, if it is one."""

    text: str
    loc: Loc = UNKNOWN
    what: str = ""
    sets: str = ""


@dataclass(frozen=True)
class Choice:
    """``if``: per arm its guard and body; an ``else`` arm comes last."""

    arms: tuple[tuple[str, tuple[Node, ...]], ...]
    loc: Loc = UNKNOWN


@dataclass(frozen=True)
class Loop:
    """``do``: ``first``, then ``body`` while ``condition`` holds."""

    first: tuple[Node, ...]
    condition: str
    body: tuple[Node, ...]
    last: tuple[Node, ...]
    loc: Loc = UNKNOWN
    #: a loop that ends by itself may be left out if nothing is left of its body
    finite: bool = True


Node = Action | Choice | Loop


def useful(nodes: tuple[Node, ...], needed: Collection[str]) -> tuple[Node, ...]:
    """``nodes`` without assignments to variables that are not ``needed``, and what they empty."""
    result: list[Node] = []
    for node in nodes:
        match node:
            case Action(sets=name):
                if not name or name in needed:
                    result.append(node)
            case Choice(arms, loc):
                kept = tuple((guard, useful(body, needed)) for guard, body in arms)
                if any(body for _, body in kept):
                    result.append(Choice(kept, loc))
            case Loop(first, condition, body, last, loc, finite):
                inner = useful(body, needed)
                if inner or not finite:
                    result.append(Loop(first, condition, inner, last, loc, finite))
    return tuple(result)


def lines(nodes: tuple[Node, ...], depth: int) -> Iterator[str]:
    """The text of ``nodes``, indented by ``depth``; every action has its place as a comment."""
    pad = "  " * depth
    for node in nodes:
        match node:
            case Action(text, loc, what):
                note = f"  /* {loc}{' ' * bool(what)}{what} */" if loc is not UNKNOWN else ""
                yield f"{pad}{text};{note}"
            case Choice(arms, loc):
                yield f"{pad}if  /* {loc} */"
                for guard, body in arms:
                    yield f"{pad}:: {guard} ->"
                    yield from lines(body or (Action("skip"),), depth + 2)
                yield f"{pad}fi;"
            case Loop(first, condition, body, last, loc):
                yield from lines(first, depth)
                yield f"{pad}do  /* {loc} */"
                yield f"{pad}:: {condition} ->"
                yield from lines((*body, *last) or (Action("skip"),), depth + 2)
                yield f"{pad}:: else -> break"
                # a break must not jump to a d_step
                yield f"{pad}od; skip;"
