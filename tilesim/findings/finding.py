"""What a kernel did wrong, as data: stable rule names, both sides, source lines, what to change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar, get_args

from tilesim.ir.loc import Loc
from tilesim.records import dataclass, field

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
    "translation",
    "unsupported",
]
RULES: tuple[str, ...] = get_args(Rule)

#: what exactly is wrong within a rule, where that decides what the cause may be
Kind = Literal[
    "deadlock/joins-too-early",  # a barrier of threads comes before what another warp waits for
    "deadlock/round-not-full",  # a named barrier counts more threads than join its round
    "race/unordered",  # no chain of release and acquire operations
    "race/in-time-only",  # ordered by operations that publish no memory to the other side
    "race/in-flight",  # the earlier access is asynchronous and not complete
    "race/unobserved",  # it is complete, and no hand-over says so
    "race/other-cluster",  # clusters do not synchronise
    "race/scopes",  # strong accesses whose scopes do not include each other
    "race/proxies",  # strong accesses of different proxies
    "race/mixed-sizes",  # strong accesses of different elements
    "race/lanes",  # lanes of a warp that do not meet between the two
    "race/released-by-lanes",  # a lane releases for others that it has not met
    "race/earlier-grid",  # no griddepcontrol.wait before it
    "race/one-store",  # parts of one store that share bytes
    "proxy-fence/async",  # no fence.proxy.async
    "proxy-fence/map-acquire",  # no acquire of the tensormap proxy
    "proxy-fence/map-release",  # no release to the tensormap proxy
    "tcgen05-order/lanes",  # several lanes issue what one is to issue
    "tcgen05-order/no-fence",  # complete, without the tcgen05 fences
    "tcgen05-order/operands",  # of one operation
    "tcgen05-order/issue-order",  # the second is not issued after the first
    "tcgen05-order/not-complete",  # the first is not known to be complete
    "tmem-lifetime/no-fence",  # the same where the columns are freed
    "tmem-lifetime/not-freed",  # the kernel ends with columns that are allocated
    "wgmma-order/no-fence",  # no wgmma.fence before the product
]


@dataclass(frozen=True)
class Iteration:
    """The turn of a loop in which something was done: the ``number``-th, counted from 1, with this
    ``value`` of the loop's ``variable``; None: not known. ``loc`` is the loop's line."""

    loc: Loc
    number: int | None
    variable: str = ""
    value: int | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A barrier or a piece of memory that a finding names: ``label`` is what its text says.

    ``name``: its array or tensor. ``slot``: its place there, for memory the first index, if it is
    one number. ``cta``: the number of its CTA, for a barrier.
    """

    label: str
    name: str
    slot: int | None = None
    cta: int | None = None

    def seen_from(self, cta: int | None) -> str:
        """What a text calls it that speaks of one CTA, or of none."""
        if self.cta is None or self.cta != cta:
            return self.label
        return self.name if self.slot is None else f"{self.name}[{self.slot}]"

    @property
    def in_any_cta(self) -> tuple[str, int | None] | str:
        """The same for the barriers at one place of all CTAs."""
        return self.label if self.cta is None else (self.name, self.slot)


#: what a participant does, as far as that is asked
Verb = Literal["reads", "writes", "waits", "touches"]


@dataclass(frozen=True, slots=True)
class Deed:
    """What a participant does, to what; ``parity`` of a wait, ``bytes`` of what counts for a
    barrier."""

    verb: Verb
    on: Named | None = None
    parity: int | None = None
    bytes: int = 0


@dataclass(frozen=True)
class Stated:
    """What a text of a finding states: what it names, which lines, numbers of arrivals and of
    bytes; ``lanes`` that execute an instruction, the ``cta`` that may end too early, the ``fence``
    that is missing."""

    named: tuple[Named, ...] = ()
    lines: tuple[Loc, ...] = ()
    arrivals: tuple[int, ...] = ()
    bytes: tuple[int, ...] = ()
    lanes: int | None = None
    cta: int | None = None
    fence: str = ""

    @property
    def names(self) -> frozenset[str]:
        """The arrays and tensors that are named."""
        return frozenset(n.name for n in self.named)


NOTHING_STATED = Stated()


def together(facts: Iterable[Stated]) -> Stated:
    """What several texts name, and the numbers that they state, each once."""
    every = tuple(facts)
    return Stated(
        _once(one.named for one in every),
        _once(one.lines for one in every),
        _once(one.arrivals for one in every),
        _once(one.bytes for one in every),
    )


_T = TypeVar("_T")


def _once(parts: Iterable[tuple[_T, ...]]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(what for part in parts for what in part))


@dataclass(frozen=True)
class Participant:
    """One side of a finding: which warp did (or waits for) what, and where in the user's source.

    ``role`` is the role's name, ``warp`` the warp in the CTA (None for an asynchronous engine or
    the whole CTA), ``action`` a clause such as ``waits on full[1] parity 0``. ``instruction`` is
    its number in the machine's program (`tilesim.ir.mir`), None for control flow. ``turns`` are
    those of the loops around it in which that was, the outermost first; empty if it is in no loop,
    or that is not known.
    """

    role: str
    cta: int
    warp: int | None
    action: str
    loc: Loc
    instruction: int | None = field(default=None, compare=False)
    #: the component of a clock and the value of it that are those of an access (`Access`)
    moment: tuple[int, int] | None = field(default=None, compare=False, repr=False)
    iterations: tuple[Iteration, ...] = field(default=(), compare=False)
    #: what ``action`` says, where code asks
    deed: Deed | None = field(default=None, compare=False, repr=False)

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
    the failing run says so (`tilesim.mistakes`), and ``culprits`` what did that, the line to change
    first; ``diagnosis`` is the name of the diagnosis that says so. What the texts say is data
    besides: ``kind`` and ``facts`` that of the message, ``noted`` that of the notes and the fix,
    ``because`` that of the cause.
    """

    rule: Rule
    message: str
    participants: tuple[Participant, ...]
    notes: tuple[str, ...] = ()
    fix: str = ""
    cause: str = field(default="", compare=False)
    culprits: tuple[Participant, ...] = field(default=(), compare=False)
    diagnosis: str = field(default="", compare=False)
    kind: Kind | None = field(default=None, compare=False, repr=False)
    facts: Stated = field(default=NOTHING_STATED, compare=False, repr=False)
    noted: Stated = field(default=NOTHING_STATED, compare=False, repr=False)
    because: Stated = field(default=NOTHING_STATED, compare=False, repr=False)
    #: whether ``fix`` is what the diagnosis says
    fixes_cause: bool = field(default=False, compare=False, repr=False)

    @property
    def locations(self) -> tuple[Loc, ...]:
        """Source lines of the culprits, then of the participants, without repetition."""
        return tuple(dict.fromkeys(p.loc for p in (*self.culprits, *self.participants)))

    @property
    def roles(self) -> tuple[str, ...]:
        """Role names of the participants, without repetition, in order."""
        return tuple(dict.fromkeys(p.role for p in self.participants))
