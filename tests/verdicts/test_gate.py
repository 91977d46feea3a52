"""A sample of the verdict files is no worse than it was; what is worse closes the gate.

Programs of the collection of bugs are all compared with their file, in `kernels/test_bugs.py`.

The whole comparison takes minutes: ``python -m tests.verdicts compare``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from tests.verdicts.compare import Difference, Rows, differences
from tests.verdicts.corpora import NAMES, TABLES, entries
from tests.verdicts.files import FOLDER, SUFFIX, by_key, file_of, kept, text_of
from tests.verdicts.measure import Task, rows_of
from tests.verdicts.row import CERTIFIED, rechecked
from tilesim.checker import check
from tilesim.checker.report import Report
from tilesim.ir.program import Program
from tilesim.proof.memory import Memory
from tilesim.proof.phases import Mbarrier

#: every so many-th litmus program is checked and rechecked here
STRIDE = 24
#: rows of the gallery that are checked and rechecked here: each family, right and wrong
GALLERY = ("hopper.copy::tensor", "hopper.matmul_v2::matmul", "cluster.push::push",
           "nvfuser.multi_role::multi_role", "blackwell.matmul_v2::matmul")  # fmt: skip
#: what is rechecked of the gallery here: warps of a launch and instructions of a cluster at most,
#: the parts in which that is done, and how many rows are as small
WARPS, STEPS, PARTS, LEAST = 12, 300, 4, 20


def of(corpus: str, names: Iterable[str]) -> tuple[Rows, Rows]:
    """The rows of the file of these programs, and those of today."""
    wanted = set(names)
    old = {key: row for key, row in kept(corpus).items() if key[0] in wanted}
    assert {program for program, _ in old} == wanted
    return old, by_key(row for name in wanted for row in rows_of(Task(corpus, name))[1])


def worse(found: Iterable[Difference]) -> list[str]:
    return [str(d) for d in found if d.kind == "worse"]


@pytest.mark.parametrize("corpus", NAMES)
def test_a_file_is_sorted_and_complete(corpus: str) -> None:
    rows = kept(corpus)
    assert file_of(corpus).read_text(encoding="utf-8") == text_of(rows.values())
    if corpus in TABLES:
        assert {program for program, _ in rows} == {entry.name for entry in entries(corpus)}


def test_every_file_is_of_a_corpus() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}{SUFFIX}" for name in NAMES}


@pytest.mark.parametrize("corpus", NAMES)
def test_no_program_that_fails_is_certified(corpus: str) -> None:
    rows = kept(corpus)
    assert worse(differences(rows, rows)) == []


@pytest.mark.parametrize(
    ("corpus", "names"),
    [
        ("litmus", sorted(entry.name for entry in entries("litmus"))[::STRIDE]),
        ("gallery", GALLERY),
        ("consan", ("stage",)),
    ],
)
def test_nothing_is_worse_than_in_the_file(corpus: str, names: Iterable[str]) -> None:
    assert worse(differences(*of(corpus, names))) == []


def certified(corpus: str) -> Iterator[str]:
    """Programs that the file says are certified at the level `practice`, sorted."""
    for (program, level), row in sorted(kept(corpus).items()):
        if level == "practice" and row.recheck == CERTIFIED:
            yield program


@pytest.mark.parametrize("part", range(PARTS))
def test_the_gallery_is_certified(part: int) -> None:
    """Every fourth small row of the gallery that the file says is certified."""
    small = 0
    for corpus in ("gallery", "bugs"):
        named = {entry.name: entry for entry in entries(corpus)}
        for program in [*certified(corpus)][4 * part :: 4 * PARTS]:
            launch = named[program].build()
            assert isinstance(launch, Program)
            if launch.ctas * launch.warps > WARPS:
                continue
            inputs = named[program].inputs()
            answer = rechecked(launch, ("practice",), STEPS, inputs)["practice"]
            assert answer == CERTIFIED or "executed instructions" in answer, (program, answer)
            small += answer == CERTIFIED
    assert small >= LEAST // PARTS


@pytest.mark.parametrize(
    ("owner", "rule", "program"),
    [(Memory, "_race", "LA02-arrive"), (Mbarrier, "not_too_many", "LA06")],
    ids=["a race", "arrivals"],
)
def test_a_rule_of_the_proof_kernel_that_is_off_closes_the_gate(
    owner: Any, rule: str, program: str
) -> None:
    with patch.object(owner, rule, lambda *_, **__: None):
        old, new = of("litmus", [program])
    assert f"worse: {program} at practice: failed, and the proof kernel certifies it" in worse(
        differences(old, new)
    )


def test_a_check_that_finds_nothing_closes_the_gate() -> None:
    def blind(program: Any, **arguments: Any) -> Report:
        return replace(check(program, **arguments), verdict="proved", findings=())

    with patch("tests.verdicts.row.check", blind):
        old, new = of("litmus", ["LA02-arrive"])
    assert worse(differences(old, new)) == [
        f"worse: LA02-arrive at {level}: failed, now proved" for level in ("practice", "ptx")
    ]
