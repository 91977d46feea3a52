"""The mutation score of the gallery: a sample of it, the mutants with a name, and the command.

``python -m tests.fuzz.test_score`` prints what `SAMPLE` has to be now.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.mutation_score import named as names
from benchmarks.mutation_score.__main__ import main
from benchmarks.mutation_score.gallery import LONG, cases, rows
from benchmarks.mutation_score.named import NAMED, Named
from benchmarks.mutation_score.tables import by_fault, score, to_look_at, with_part
from tilesim.checker import check
from tilesim.cli import main as command
from tilesim.errors import UsageError
from tilesim.fuzz import FAULTS
from tilesim.fuzz import judge as judging
from tilesim.fuzz.campaign import Site, sites
from tilesim.fuzz.cases import Case, Outcome, Settings
from tilesim.fuzz.judge import Kind, base_of, judge, kind
from tilesim.kernels.hopper import matmul_v1

#: small kernels that have between them most of the instructions that faults are about
KERNELS = (
    "hopper.matmul_v4", "hopper.copy::tensor", "cluster.multicast", "bugs.cluster_arrivals::local",
    "bugs.tensor_memory::hand_over", "bugs.copy_groups::waited_too_little",
    "bugs.barrier_storage::reused_storage",
)  # fmt: skip
#: of the sample, by fault: found or refused, wrong result, equivalent
SAMPLE: dict[str, tuple[int, int, int]] = {
    "arrive dropped": (2, 0, 0),
    "arrive duplicated": (2, 0, 0),
    "arrive too early": (2, 0, 0),
    "arrive before the group wait": (2, 0, 0),
    "commit too early": (1, 0, 0),
    "commit without the operations": (1, 0, 0),
    "wrong arrival count": (2, 0, 0),
    "wrong bytes": (2, 0, 0),
    "bytes not expected": (2, 0, 0),
    "init dropped": (2, 0, 0),
    "inval dropped": (2, 0, 0),
    "named barrier dropped": (2, 0, 0),
    "cluster barrier dropped": (1, 0, 1),
    "cluster barrier halved": (2, 0, 0),
    "cluster barrier relaxed": (0, 0, 2),
    "dead predicate": (2, 0, 0),
    "every lane": (2, 0, 0),
    "uneven trips": (1, 1, 0),
    "copy dropped": (2, 0, 0),
    "wrong multicast mask": (2, 0, 0),
    "mbarrier_init fence dropped": (2, 0, 0),
    "tcgen05 fence dropped": (0, 0, 2),
    "wgmma fence dropped": (1, 0, 0),
    "store not awaited": (1, 0, 0),
    "wgmma wait dropped": (1, 0, 0),
    "cp.async wait dropped": (2, 0, 0),
    "tcgen05 wait dropped": (1, 0, 0),
    "wrong group count": (2, 0, 0),
    "group commit dropped": (2, 0, 0),
    "group commit too early": (2, 0, 0),
    "columns not freed": (1, 0, 0),
    "barrier of another slot": (2, 0, 0),
    "data of another slot": (2, 0, 0),
    "wait dropped": (2, 0, 0),
    "wrong parity": (2, 0, 0),
    "phase not carried": (2, 0, 0),
    "relaxed arrival": (2, 0, 0),
    "relaxed wait": (2, 0, 0),
    "scope too small": (0, 0, 2),
}
#: the findings that say what is wrong with each of the mutants with a name, by a word of it
FINDINGS = {
    "skip": {"race", "over-arrival", "tcgen05-order"},
    "slot": {"race"},
    "released": {"race", "deadlock", "tcgen05-order"},
    "wgmma": {"race"},
    "phase": {"race"},
    "count": {"deadlock", "over-arrival"},
    "fence": {"proxy-fence"},
    "store": {"race"},
}


def sample() -> list[Case]:
    """At most two mutants of each fault."""
    return list(cases([row for name in KERNELS for row in rows(name)], sample=2))


def counts(outcomes: list[Outcome]) -> dict[str, tuple[int, int, int]]:
    """Per fault: found or refused, wrong result, equivalent."""
    kinds = Counter((o.fault, kind(o)) for o in outcomes)
    return {
        fault: (
            kinds[fault, "found"] + kinds[fault, "refused"],
            kinds[fault, "wrong result"],
            kinds[fault, "equivalent"],
        )
        for fault in FAULTS
        if any(o.fault == fault for o in outcomes)
    }


def test_score_of_a_sample() -> None:
    outcomes = [judge(case) for case in sample()]
    assert {kind(o) for o in outcomes} <= {"found", "refused", "wrong result", "equivalent"}
    assert counts(outcomes) == SAMPLE


@pytest.mark.parametrize("named", NAMED, ids=lambda n: f"{n.generation}: {n.name}")
def test_every_mutant_with_a_name_is_found_in_one_run(named: Named) -> None:
    outcome = judge(named.case())
    assert kind(outcome) == "found", outcome
    assert outcome.schedules == 1
    wanted = next(rules for word, rules in FINDINGS.items() if word in named.name)
    assert outcome.rules[0] in wanted, outcome


def test_there_are_as_many_names_as_in_the_comparison() -> None:
    assert Counter(named.generation for named in NAMED) == {"Hopper": 11, "Blackwell": 12}
    assert len(set(NAMED)) == 23


def test_a_name_without_a_place_is_an_error() -> None:
    with pytest.raises(UsageError, match="no place for 'wait dropped' at 'nowhere'"):
        replace(NAMED[0], line="nowhere").case()


@pytest.mark.parametrize("target", LONG)
def test_long_parameters_are_of_correct_kernels(target: str) -> None:
    for params in LONG[target]:
        base = base_of(f"tilesim.kernels.{target}", tuple(params.items()))
        assert check(base.program).verdict == "proved", params


# ------------------------------------------------------------------ judging

COPY = "tilesim.kernels.hopper.matmul_v1::matmul"
KERNELS_HERE = str(Path(__file__).with_name("kernels.py"))


def judged(fault: str, what: str = "", target: str = COPY) -> Outcome:
    """What becomes of the first mutant of this kind."""
    every = base_of(target, ()).mutants
    index = next(i for i, m in enumerate(every) if m.fault == fault and what in m.what)
    return judge(Case(0, target, (), Settings(), 0, index))


def test_a_wrong_result_is_what_tilesim_run_reports(tmp_path: Path) -> None:
    outcome = judged("uneven trips", "fewer")
    assert (outcome.verdict, outcome.numbers, kind(outcome)) == ("proved", "wrong", "wrong result")
    assert "matmul_v1.py:" in outcome.where
    source = Path(matmul_v1.__file__).read_text(encoding="utf-8")
    loop = 'k.loop(tiles(depth, BLOCK_K, "depth")'
    mutant = tmp_path / "mutant.py"
    mutant.write_text(source.replace(loop, f"{loop} - 1"), encoding="utf-8")
    ran = CliRunner().invoke(command, ["run", f"{mutant}::matmul"])
    assert ran.exit_code == 1, ran.output
    assert f"  result    {outcome.message}\n" in ran.output


@pytest.mark.parametrize(
    ("kernel", "expected", "message"),
    [
        ("copied", "wrong result", "Y (3x32 uint32): differs from the reference"),
        ("copied_unseen", "silent", ""),
        ("copied_unasked", "silent", ""),
        ("copied_wrongly", "error", "UsageError: copied itself: Y (3x32 uint32): differs from"),
    ],
)
def test_a_loop_that_ends_early_is_for_the_reference_to_find(
    kernel: str, expected: Kind, message: str
) -> None:
    outcome = judged("uneven trips", "fewer", f"{KERNELS_HERE}::{kernel}")
    assert kind(outcome) == expected, outcome
    assert outcome.message.startswith(message)
    assert bool(outcome.message) == bool(message)


def test_an_arrival_that_need_not_release_changes_nothing() -> None:
    outcome = judged("relaxed arrival")
    assert (outcome.verdict, outcome.numbers, kind(outcome)) == ("proved", "same", "equivalent")
    assert outcome.ptx == ()


def test_what_the_text_of_ptx_forbids_is_said_of_an_equivalent_mutant() -> None:
    target = "tilesim.kernels.bugs.cluster_arrivals::local_arrive"
    base = base_of(target, (("fixed", True),))
    assert base.clean_in_ptx
    index = next(i for i, m in enumerate(base.mutants) if m.fault == "scope too small")
    outcome = judge(Case(0, target, base.params, Settings(), 0, index))
    assert kind(outcome) == "equivalent"
    assert "race" in outcome.ptx


def test_a_schedule_that_contradicts_a_proof_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    proved = judging.base_of(COPY, ()).check(judging.base_of(COPY, ()).program, "practice")
    assert proved.verdict == "proved"
    monkeypatch.setattr(judging, "check_whole", lambda *_, **__: proved)
    outcome = judged("wait dropped")
    assert kind(outcome) == "contradicted"
    assert outcome.numbers == "race in schedule timed 0"


def made(verdict: str, rules: tuple[str, ...] = (), *, numbers: str = "", trips: int = 1,
         where: str = "wait dropped at a.py:1: gone") -> Outcome:  # fmt: skip
    case = Case(0, "tilesim.kernels.a::b", (("trips", trips),), Settings(), 0, 0)
    fault = where.partition(" at ")[0]
    return Outcome(case, verdict, rules, fault=fault, where=where, numbers=numbers, schedules=1)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (made("failed", ("race",)), "found"),
        (made("rejected", ("operand",)), "refused"),
        (made("proved", numbers="same"), "equivalent"),
        (made("exhausted", numbers="same"), "equivalent"),
        (made("proved", numbers="wrong"), "wrong result"),
        (made("exhausted", numbers="wrong"), "wrong result"),
        (made("proved", numbers="other"), "silent"),
        (made("proved", numbers="race in schedule pct 1"), "contradicted"),
        (made("bounded", numbers="same"), "open"),
        (made("unsupported"), "open"),
        (made("error"), "error"),
    ],
)
def test_kinds(outcome: Outcome, expected: Kind) -> None:
    assert kind(outcome) == expected


def test_one_place_is_one_site_whatever_the_parameters() -> None:
    twice = [made("proved", numbers="same"), made("bounded")]
    longer = [made("proved", numbers="same", trips=9), made("failed", ("race",), trips=9)]
    first, second = sites([*twice, *longer])
    assert (first.number, first.kind, len(first.outcomes)) == (0, "equivalent", 2)
    assert (second.number, second.kind, second.decisive.case.params) == (
        1, "found", (("trips", 9),),
    )  # fmt: skip


def test_the_score_counts_what_is_not_equivalent() -> None:
    found = sites(
        made(verdict, rules, numbers=numbers, where=f"wait dropped at a.py:{n}: gone")
        for n, (verdict, rules, numbers) in enumerate((
            ("failed", ("race",), ""), ("rejected", ("operand",), ""), ("proved", (), "same"),
            ("proved", (), "other"), ("bounded", (), "same"), ("proved", (), "wrong"),
        ))
    )  # fmt: skip
    assert score(found) == 40.0
    assert score(found, ran=True) == 60.0
    assert [s.kind for s in to_look_at(found)] == ["open", "silent"]
    head, row, total = by_fault(found)
    assert row == ("wait dropped", "6", "1", "1", "1", "1", "1", "1", "race 1", "1")
    assert total[0] == "all"
    assert len(head) == len(row)


# ------------------------------------------------------------------ the command


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_command_prints_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "NAMED", NAMED[:1])
    page = tmp_path / "page.md"
    parts = ("summary", "by fault", "by kernel", "to look at", "names")
    page.write_text("".join(f"<!-- {p} -->\n<!-- end of {p} -->\n" for p in parts))
    arguments = ("--kernel", "hopper.copy::vector", "--fault", "wait dropped")
    result = invoke(*arguments, "--page", str(page))
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0].split()[:3] == ["fault", "sites", "found"]
    assert "check finds 100.0 % of those that are not equivalent" in result.output
    assert "| wait dropped | " in page.read_text()
    assert f"| Hopper | {NAMED[0].name} | " in page.read_text()
    assert "None." in page.read_text()
    document = json.loads(invoke(*arguments, "--format", "json").stdout)
    assert {m["kind"] for m in document["mutants"]} == {"found"}


def test_command_passes_if_run_finds_what_check_does_not() -> None:
    result = invoke("--kernel", "hopper.matmul_v1", "--fault", "uneven trips")
    assert result.exit_code == 0
    assert "1 wrong result" in result.output
    assert "100.0 % with what run finds" in result.output
    assert "check finds 100.0 %" not in result.output
    arguments = ("--kernel", "hopper.matmul_v1", "--fault", "uneven trips", "--format", "json")
    mutants = json.loads(invoke(*arguments).stdout)["mutants"]
    (wrong,) = (m for m in mutants if m["kind"] == "wrong result")
    assert wrong["verdict"] == "proved"
    assert wrong["message"].startswith("C (128x128 float32): differs from the reference")


def test_command_fails_if_something_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "compare", lambda *_: ())
    result = invoke("--kernel", "hopper.matmul_v1", "--fault", "uneven trips")
    assert result.exit_code == 1
    assert "silent: hopper.matmul_v1::matmul[" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kernel", "nowhere"), "no correct kernel whose name contains 'nowhere'"),
        (("--kernel", "hopper.copy", "--fault", "typo"), "there is no fault 'typo'"),
    ],
)
def test_misuse(arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_page_without_markers_is_not_written() -> None:
    with pytest.raises(UsageError, match="the page has no part 'summary'"):
        with_part("# page\n", "summary", "new")


def test_a_sample_is_the_same_every_time() -> None:
    selected = rows("hopper.copy")
    assert list(cases(selected, sample=1, seed=1)) == list(cases(selected, sample=1, seed=1))
    assert list(cases(selected, sample=1, seed=1)) != list(cases(selected, sample=1, seed=2))
    some: tuple[Site, ...] = ()
    assert score(some) == 100.0


if __name__ == "__main__":
    for fault, row in counts([judge(case) for case in sample()]).items():
        print(f'    "{fault}": {row},')
