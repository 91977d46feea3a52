"""What a report as JSON consists of: the types of its objects, which are its JSON Schema.

A key that is not always there is `NotRequired`; others are, and null where there is nothing.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NotRequired, TypedDict

from tilesim.ir.program import Verdict

SCHEMA: Final = 1


class Place(TypedDict):
    """A line of source."""

    file: str
    line: int
    #: of a function that the kernel calls: where it is called, the nearest call first
    calls: NotRequired[list[Place]]
    #: of PTX: the line of a function that is inlined there, or that of the PTX
    behind: NotRequired[Place]


class Iteration(Place):
    """The turn of a loop: its number, from 1, and what the loop's variable was."""

    number: int | None
    variable: str | None
    value: int | None


class Participant(Place):
    """What a warp, or an asynchronous engine (warp null), did."""

    role: str
    cta: int
    warp: int | None
    action: str
    instruction: int | None
    iterations: list[Iteration]


class Finding(TypedDict):
    """What a kernel did wrong; witness is the schedule that showed it."""

    rule: str
    message: str
    cause: str
    culprits: list[Participant]
    locations: list[Place]
    participants: list[Participant]
    notes: list[str]
    fix: str
    witness: dict[str, Any] | None


class Leaning(TypedDict):
    """Something that a proof leans on."""

    name: str
    kind: Literal["practice", "assumption", "model"]
    text: str
    locations: list[Place]
    denied: bool


class Diagnostic(TypedDict):
    """Why a program is rejected before it runs."""

    rule: str
    message: str
    locations: list[Place]
    fix: str


class Stats(TypedDict):
    """What a check cost."""

    instructions: int
    schedules: int
    ctas: int


class Obstacle(Place):
    """What stands in the way of saying something about more values."""

    what: str


class Limit(Obstacle):
    """The last value of which something is said, and why."""

    last: int


class Said(TypedDict):
    """A verdict and the values of parameters that it is about."""

    verdict: str
    values: str


class ForAll(TypedDict):
    """What has been found out about all values of a parameter."""

    wanted: str
    proved: bool
    obstacle: Obstacle | None
    limit: Limit | None
    refused: list[int]
    at: int | None
    upto: int | None
    said: list[Said]
    runs: int


class Change(Place):
    """Lines before and after a repair; patch: those of a file."""

    before: list[str]
    after: list[str]
    patch: dict[str, Any] | None


class Repair(TypedDict):
    """Edits with which the kernel has the verdict."""

    what: str
    verdict: str
    changes: list[Change]


class Repairs(TypedDict):
    """The repairs that were found, the best first; ended: more time would find no more."""

    tried: int
    seconds: float
    ended: bool
    found: list[Repair]


class Rechecked(TypedDict):
    """What the proof kernel says of a proof, and what it trusts besides."""

    verdict: Literal["certified", "refuted", "not covered"]
    rule: str
    what: str
    trusts: str


class Relations(TypedDict):
    """How many relations of a kind the PTX has, by what became of them in the machine code."""

    shown: int
    explained: int
    lost: int
    undecided: int


class Instruction(TypedDict):
    """What became of a synchronising PTX instruction: pcs are its copies in the machine code."""

    kind: str
    line: int
    text: str
    outcome: str
    pcs: list[int]
    why: str


class Undecided(TypedDict):
    """What could not be compared, and why; always: it is so of each instruction of the kind."""

    kind: str
    line: int
    text: str
    why: str
    always: bool


class Difference(TypedDict):
    """Something that the machine code does not do as the PTX says; weaker: it is a finding."""

    kind: str
    rule: str
    effect: Literal["weaker", "stronger", "harmless"]
    line: int
    text: str
    pc: int | None
    sass: str
    sentence: str


class MachineCode(TypedDict):
    """With --sass: what was found in the machine code; without is the verdict without it, on the
    form of the kernel that was checked."""

    verdict: Literal["validated", "failed", "undecided", "none"]
    without: Verdict
    form: Literal["PTX", "program"]
    source: str
    missing: str
    ptxas: str | None
    arch: str | None
    outcomes: dict[str, int]
    relations: dict[str, Relations]
    instructions: list[Instruction]
    differences: list[Difference]
    undecided: list[Undecided]


class Result(TypedDict):
    """What became of a kernel."""

    kernel: str
    target: str | None
    verdict: Verdict | Literal["rejected", "error"]
    covers: str
    conditional: bool
    leanings: list[Leaning]
    reasons: list[str]
    findings: list[Finding]
    diagnostics: list[Diagnostic]
    error: str | None
    stats: Stats | None
    for_all: NotRequired[ForAll]
    repairs: NotRequired[Repairs]
    rechecked: NotRequired[Rechecked]
    machine_code: NotRequired[MachineCode]
    #: with --times: how long it took
    seconds: NotRequired[float]


class Line(Result):
    """A line of --format jsonl: number is its place in the order of the targets."""

    number: int


class Interrupted(TypedDict):
    """Which kernel was being checked, and how many were not begun."""

    kernel: str
    not_started: int


class Document(TypedDict):
    """A report of tilesim check."""

    schema: Literal[1]
    results: list[Result]
    interrupted: NotRequired[Interrupted]


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a report; a line of ``jsonl`` is ``#/$defs/Line`` of it."""
    from msgspec.json import schema_components  # only the schema needs it

    (document, _), definitions = schema_components((Document, Line), ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A report of tilesim check, schema {SCHEMA}",
        **document,
        "$defs": definitions,
    }
