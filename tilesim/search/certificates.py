"""Certificates of what a check has proved, for `tilesim.proof`. Nothing here is trusted."""

from __future__ import annotations

from tilesim.ir.kernel import Kernel
from tilesim.ir.lower import lower
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.ir.verify import verify
from tilesim.proof.certificate import Certificate, fingerprint, read
from tilesim.proof.check import recheck as kernel_recheck
from tilesim.proof.check import same_so_far
from tilesim.proof.operands import Differs
from tilesim.proof.rules import Answer, NotCovered, Refuted

#: classes that are worth naming: each is executed once
MOST_CLASSES = 64


def machine_form(program: Program | Mir) -> Mir:
    """What certificates are of: the program as the machine runs it.

    Raises:
        InvalidProgram: it is rejected before it runs.
    """
    verify(program, to_run=True)
    return program if isinstance(program, Mir) else lower(program)


def recheck(certificate: Certificate | str, program: Program | Mir | Kernel) -> Answer:
    """What the proof kernel says of a certificate, or of the text of its file, and the program of
    which it is one; of a kernel, that with the defaults of its parameters.

    Raises:
        InvalidProgram: the program is rejected before it runs.
        UsageError: the text is no certificate.
    """
    if isinstance(certificate, str):
        certificate = read(certificate)
    return kernel_recheck(
        certificate, machine_form(program.build() if isinstance(program, Kernel) else program)
    )


def certificate_of(mir: Mir, strict: Strict, assumptions: tuple[str, ...]) -> Certificate:
    """The certificate of a program that is proved at a level, under named assumptions."""
    digest, given = fingerprint(mir), tuple(sorted(assumptions))
    return Certificate(mir.kernel.name, "", digest, strict, given, classes_of(mir))


def classes_of(mir: Mir) -> tuple[tuple[int, ...], ...] | None:
    """Clusters that do the same, each in one class, found by trying; None: in too many classes."""
    left = list(range(mir.kernel.ctas // mir.kernel.cluster_size))
    found: list[tuple[int, ...]] = []
    while left:
        if len(found) == MOST_CLASSES:
            return None
        some = left  # a class of one cluster needs no look
        while len(some) > 1 and (other := _differing(mir, some)) is not None:
            some = [c for c in some if c != other]
        found.append(tuple(some))
        left = [c for c in left if c not in some]
    return tuple(found)


def _differing(mir: Mir, clusters: list[int]) -> int | None:
    """A cluster that decides otherwise than the first one, if there is one."""
    try:
        same_so_far(mir, clusters)
    except Differs as why:
        return why.cluster
    except (Refuted, NotCovered):
        pass
    return None
