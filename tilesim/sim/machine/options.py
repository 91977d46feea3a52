"""How the machine reads the rules, and what a run is told."""

from __future__ import annotations

from dataclasses import dataclass

from tilesim.sim.machine.chance import Answers, Order


@dataclass(frozen=True, slots=True)
class Options:
    """How strictly the machine reads the rules, and whether it computes numbers.

    ``ptx``: the text as written; otherwise also what shipping code relies on (SEMANTICS 0.3).
    ``answers`` is what clusterlaunchcontrol answers; None: the grid is dealt out. ``order`` is the
    order of draws from counters; None: as it comes. ``first_lane``: ``elect.sync`` chooses the
    first lane also where the text is followed, which names none. ``leaves``: at which of the
    branches by which data makes all threads of a CTA end they do (`tilesim.sim.leaving`).
    ``max_steps`` bounds scheduling points of one run, ``deadline`` the time; ``patience``, in warp
    instructions, is for callers that know another way if a run takes long: those that are skipped
    count as well, so that what they do then does not depend on what is skipped. A run stops
    after ``most_findings`` different findings.
    """

    ptx: bool = False
    numbers: bool = True
    answers: Answers | None = None
    order: Order | None = None
    first_lane: bool = False
    leaves: int | None = None
    max_steps: int = 20_000_000
    #: when to stop, in seconds of `time.monotonic`
    deadline: float | None = None
    patience: int | None = None
    most_findings: int = 20
    #: what every byte of shared memory holds at the start
    garbage: int = 0
