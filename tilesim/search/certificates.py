"""Certificates of what a check has proved, for `tilesim.proof`. Nothing here is trusted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

from tilesim.ir.kernel import Kernel
from tilesim.ir.lower import lower
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.ir.verify import verify
from tilesim.proof.certificate import Certificate, fingerprint, read
from tilesim.proof.check import LEVELS, MOST_CLASSES, same_so_far
from tilesim.proof.check import recheck as kernel_recheck
from tilesim.proof.operands import Differs
from tilesim.proof.rules import Answer, NotCovered, Refuted
from tilesim.timer import Timer, duration

#: executions by which classes of clusters are looked for
MOST_LOOKS = 256


def machine_form(program: Program | Mir) -> Mir:
    """What certificates are of: the program as the machine runs it.

    Raises:
        InvalidProgram: it is rejected before it runs.
    """
    verify(program, to_run=True)
    return program if isinstance(program, Mir) else lower(program)


def recheck(
    certificate: Certificate | str, program: Program | Mir | Kernel, *,
    time_limit: timedelta | float | None = None,
) -> Answer:  # fmt: skip
    """What the proof kernel says of a certificate, or of the text of its file, and the program of
    which it is one; of a kernel, that with the defaults of its parameters. ``time_limit``: what it
    may take, in seconds or as a timedelta; what takes longer is not covered.

    Raises:
        InvalidProgram: the program is rejected before it runs.
        UsageError: the text is no certificate, or the time limit is not positive.
    """
    if isinstance(certificate, str):
        certificate = read(certificate)
    timer = Timer(None if time_limit is None else duration("time_limit", time_limit))
    mir = machine_form(program.build() if isinstance(program, Kernel) else program)
    return kernel_recheck(certificate, mir, until=timer.until)


def certified(
    program: Program | Mir, strict: Strict, assumptions: tuple[str, ...], until: float | None
) -> tuple[Certificate, Answer]:
    """The certificate of a program that is proved at a level, under named assumptions, and what the
    proof kernel says of it; ``until``: when to give up, in seconds of `time.monotonic`."""
    mir = machine_form(program)
    digest, given = fingerprint(mir), tuple(sorted(assumptions))
    classes = classes_of(mir, until) if strict in LEVELS else None
    made = Certificate(mir.kernel.name, "", digest, strict, given, classes)
    return made, kernel_recheck(made, mir, until=until)


def classes_of(mir: Mir, until: float | None = None) -> tuple[tuple[int, ...], ...] | None:
    """Clusters that do the same, each in one class, found by trying; None: in too many classes, or
    not by ``until``, in seconds of `time.monotonic`."""
    left: Sequence[int] = range(mir.kernel.ctas // mir.kernel.cluster_size)
    found: list[tuple[int, ...]] = []
    looks = 0
    while left:
        others: set[int] = set()
        some = left
        while len(some) > 1 and (differing := _differing(mir, some, until)):
            others |= differing
            some = [c for c in some if c not in differing]
            looks += 1
            if looks == MOST_LOOKS:
                return None
        found.append(tuple(some))
        left = sorted(others)
        late = until is not None and monotonic() >= until
        if late or (left and len(found) == MOST_CLASSES):
            return None
    return tuple(found)


def _differing(mir: Mir, clusters: Sequence[int], until: float | None) -> set[int]:
    """The clusters that are the first found to decide otherwise than the first one."""
    try:
        same_so_far(mir, clusters, until)
    except Differs as why:
        return set(why.clusters)
    except (Refuted, NotCovered):
        pass
    return set()
