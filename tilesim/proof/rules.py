"""What the proof kernel answers besides "certified", and the table of its rules.

A rule is a function that raises `Refuted` with the rule's number where what it says does not hold.
The number is that of a condition of docs/soundness.md (A, B, C1...) or of a rule of PTX as
docs/semantics.md counts them (A6, H6...), or a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from tilesim.records import dataclass

F = TypeVar("F", bound=Callable[..., Any])


class Refuted(Exception):
    """A rule that does not hold: its number, and what breaks it, in words."""

    def __init__(self, rule: str, what: object) -> None:
        super().__init__(rule, str(what))
        self.rule = rule
        self.what = str(what)


class NotCovered(Exception):
    """Something of which the kernel knows no rule, in words. Nothing is said of the program."""

    def __init__(self, what: object) -> None:
        super().__init__(str(what))
        self.what = str(what)


@dataclass(frozen=True)
class Answer:
    """What the kernel says of a launch: ``rule`` and ``what`` is wrong, or ``what`` it lacks."""

    verdict: Literal["certified", "refuted", "not covered"]
    rule: str = ""
    what: str = ""

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.verdict, self.rule, self.what)))


@dataclass(frozen=True)
class Rule:
    """A row of the table: the rule's number, the sentence that is enforced, and where."""

    number: str
    sentence: str
    where: str


#: every rule by its number
RULES: dict[str, Rule] = {}


def rule(number: str, sentence: str) -> Callable[[F], F]:
    """Decorator: the function enforces this rule. One function may enforce several."""

    def enter(function: F) -> F:
        if number in RULES:
            raise ValueError(f"two functions enforce {number}")
        where = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        RULES[number] = Rule(number, sentence, where)
        return function

    return enter
