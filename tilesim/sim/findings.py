"""What a kernel did wrong, as data: stable rule names, both sides, source lines, what to change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from tilesim.ir.loc import Loc

Rule = Literal[
    "deadlock",
    "race",
    "noncoherent-load",
    "proxy-fence",
    "tcgen05-order",
    "over-arrival",
    "tx-mismatch",
    "phase-alias",
    "phase-ambiguity",
    "uninitialised-barrier",
    "barrier-lifetime",
    "init-visibility",
    "peer-start",
    "peer-exit",
    "tmem-lifetime",
    "participation",
    "named-barrier",
    "bulk-group",
    "wgmma-order",
    "out-of-bounds",
    "uninitialised-read",
    "async-at-exit",
    "register-pool",
    "launch-control",
    "unsupported",
]
RULES: tuple[str, ...] = get_args(Rule)


@dataclass(frozen=True)
class Turn:
    """The turn of a loop in which something was done: the ``number``-th, counted from 1, with this
    ``value`` of the loop's ``variable``; None: not known. ``loc`` is the loop's line."""

    loc: Loc
    number: int | None
    variable: str = ""
    value: int | None = None


@dataclass(frozen=True)
class Participant:
    """One side of a finding: who did (or waits for) what, and where in the user's source.

    ``role`` is the role's name, ``warp`` the warp in the CTA (None for an asynchronous engine or
    the whole CTA), ``action`` a clause such as ``waits on full[1] parity 0``. ``instruction`` is
    its number in the machine's program (`tilesim.ir.mir`), None for control flow. ``turns`` are
    those of the loops around it in which that was, the outermost first; empty if it is in no loop,
    or nobody knows.
    """

    role: str
    cta: int
    warp: int | None
    action: str
    loc: Loc
    instruction: int | None = field(default=None, compare=False)
    #: the component of a clock and the value of it that are those of an access (`Access`)
    moment: tuple[int, int] | None = field(default=None, compare=False, repr=False)
    turns: tuple[Turn, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.role} {self.action} at {self.loc}"


def relabelled(text: str, cta: int, warp: int, was: str, now: str) -> str:
    """``text`` with another role for a warp, or with none if ``now`` is its number."""
    if was in (now, f"warp {warp}"):
        return text
    for place in (f"warp {warp}", f"CTA {cta} warp {warp}"):
        own = place if now == f"warp {warp}" else f"{now} ({place})"
        text = text.replace(f"{was} ({place})", own)
    return text


@dataclass(frozen=True)
class Finding:
    """One defect.

    ``message`` says what happened in one sentence; ``participants`` are both sides (all waiters of
    a deadlock), the one to change first; ``notes`` are further lines (barrier states, the wait-for
    chain and cycle); ``fix`` says what to change. ``cause``: what it comes from, if a diagnosis of
    the failing run says so (`tilesim.blame`), and ``culprits`` who did that, the line to change
    first; ``diagnosis`` is the name of the diagnosis that says so.
    """

    rule: Rule
    message: str
    participants: tuple[Participant, ...]
    notes: tuple[str, ...] = ()
    fix: str = ""
    cause: str = field(default="", compare=False)
    culprits: tuple[Participant, ...] = field(default=(), compare=False)
    diagnosis: str = field(default="", compare=False)

    @property
    def locations(self) -> tuple[Loc, ...]:
        """Source lines of the culprits, then of the participants, without repetition."""
        return tuple(dict.fromkeys(p.loc for p in (*self.culprits, *self.participants)))

    @property
    def roles(self) -> tuple[str, ...]:
        """Role names of the participants, without repetition, in order."""
        return tuple(dict.fromkeys(p.role for p in self.participants))
