"""The gallery, emitted to PTX and read back: the same verdicts, rules and source lines."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.gpu import needs
from tests.kernels.fewer_tiles import with_fewer_tiles
from tests.ptx import campaign
from tilesim.arith.types import s32, u32
from tilesim.checker import Report, check
from tilesim.cli import main
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.gpu.emit import Source, emit
from tilesim.ir.program import Strict
from tilesim.kernels.registry import Case, cases

#: a copy in PTX knows no tiles: the bytes it moves are contiguous, be they of one tile or not
NOT_IN_PTX = {"flattened_region"}
#: the machine says deadlock where it says register-pool for the program with roles
OTHER_RULE = {"register-pool": "deadlock"}
#: rows whose other findings hang on how long instructions take, of which PTX has more: what the
#: program says beside the race that both report, and what its PTX says
AFTER_THE_RACE = {
    # a copy that no phase counts meets a later phase, or the end of the kernel
    "plain_arrive": ({"async-at-exit"}, {"deadlock"}),
    # an arrival too early lets the other role in, or shuts it out
    "printed[open_twice=False,dead_role=False,early_inval=False,register_sharing=False]": (
        set(), {"deadlock"},
    ),
}  # fmt: skip
LIMIT = timedelta(minutes=30)
#: rows of which less is decided in PTX, and why: a ring's place hangs on answers of launch control
UNDECIDED = {"matmul[stages=2,m=256,chunk=16]": "which cluster cancels which other"}
#: right rows that take long, and are like others: v5, attention_v2 and those of `test_read_back`
#: and `test_cuda_blackwell`
LONG = ("blackwell.matmul_v6::", "hopper.attention::", "hopper.attention_v1::",
        "hopper.matmul_grouped::", "hopper.matmul_fp8::", "hopper.matmul_fp8_blocks::")  # fmt: skip
#: by verdict, what `tilesim check` exits with
CODES = {"proved": 0, "exhausted": 0, "failed": 1, "bounded": 3}


def rows() -> list[Any]:
    """All, but in a campaign only: others than the first one of a kernel that is right, or is not,
    than the first wrong one of every third file of bugs, long ones, and the exceptions."""
    every: defaultdict[tuple[str, str, Strict], list[Case]] = defaultdict(list)
    for case in cases():
        if case.expected != "rejected" and case.kernel.name not in NOT_IN_PTX:
            source = case.target.partition("::" if case.family == "bugs" else "[")[0]
            every[source, case.expected, case.strict].append(with_fewer_tiles(case))
    wrong = [
        alike[0].target for alike in every.values() if alike[0].family == "bugs" and alike[0].fails
    ]
    later = [
        case
        for alike in every.values()
        for n, case in enumerate(alike)
        if n
        or (case.family == "bugs" and case.target not in wrong[::3])
        or case.target.removeprefix("tilesim.kernels.").startswith(LONG)
    ]
    slow = [case for case in later if case.target.partition("::")[2] not in AFTER_THE_RACE]
    return [
        pytest.param(case, id=case.target, marks=pytest.mark.slow if case in slow else ())
        for alike in every.values()
        for case in alike
    ]


def back(case: Case) -> tuple[Source, Report]:
    source = emit(case.kernel.build(**case.params))
    return source, check(campaign.back(source), strict=case.strict, time_limit=LIMIT)


def told(case: Case, folder: Path) -> dict[str, Any]:
    """What a user is told who emits a row, and checks what has been written."""
    ptx, launch = str(folder / "k.ptx"), str(folder / "k.json")
    emitted = CliRunner().invoke(main, ["emit", case.target, "-o", ptx])
    assert emitted.exit_code == 0, emitted.output
    command = ["check", ptx, "--launch", launch, "--strict", case.strict, "--format", "json"]
    checked = CliRunner().invoke(main, command)
    (result,) = json.loads(checked.stdout)["results"]
    assert checked.exit_code == CODES[result["verdict"]]
    found: dict[str, Any] = result
    return found


def places(report: Report) -> set[tuple[str, frozenset[int]]]:
    """Rules and lines of findings."""
    return {
        (OTHER_RULE.get(f.rule, f.rule), frozenset(p.loc.line for p in f.participants))
        for f in report.findings
    }


def places_told(result: dict[str, Any], source: Source) -> set[tuple[str, frozenset[int]]]:
    """Rules and lines of findings in what is emitted, as lines of the kernel's own source."""
    found = set()
    for finding in result["findings"]:
        own = (source.loc(participant["line"]) for participant in finding["participants"])
        lines = frozenset(0 if loc is None else loc.line for loc in own)
        found.add((OTHER_RULE.get(finding["rule"], finding["rule"]), lines))
    return found


@needs.compiler
@pytest.mark.parametrize("case", rows())
def test_all_rows_read_back(case: Case, tmp_path: Path) -> None:
    """By the command line, as a user does it, in the lines that the compiler gives."""
    result = told(case, tmp_path)
    name = str(case.target).partition("::")[2]
    # PTX has more instructions to explore: the budget may end before all schedules are tried
    enough = {"exhausted", "bounded"} if case.expected == "exhausted" else {case.expected}
    if name in UNDECIDED:
        assert UNDECIDED[name] in result["reasons"][0]
        enough = {"bounded"}
    assert result["verdict"] in enough, (result["reasons"], result["findings"])
    if case.expected == "failed":
        program = case.kernel.build(**case.params)
        assert case.kernel.inputs is None
        own = places(check(program, strict=case.strict, time_limit=LIMIT))
        read_back = places_told(result, emit(program))
        says, ptx_says = AFTER_THE_RACE.get(name, (set(), set()))
        assert {rule for rule, _ in own - read_back} == says
        assert {rule for rule, _ in read_back - own} == ptx_says
        assert own & read_back


@kernel(target="sm_100a", warps=2)
def tiles(k: Builder, *, odd_ones: str = "elsewhere", own: str = "known") -> None:
    """A warp asks for tiles and hands their numbers to another one, which marks them.

    ``odd_ones`` are marked ``elsewhere``, or are ``left out``. The number of the CTA's ``own`` tile
    is ``known``, or ``handed over`` like the others.
    """
    k.launch(grid=5)
    done = k.tensor("done", s32, (2, 5))
    response, number = k.shared("response", u32, (4,)), k.shared("number", s32, (1,))
    arrived, published, finished = (k.mbarriers(n) for n in ("arrived", "published", "finished"))
    x, more, count = k.var("x", k.cta_x), k.var("more", 1), k.var("count", 0)
    with k.one_thread():
        for barrier in (arrived, published, finished):
            k.mbarrier.init(barrier, 1)
        if own == "handed over":
            k.mem.store(number[0], k.cta_x)
    k.sync_threads()
    if own == "handed over":
        k.mem.load(x, number[0])
        k.sync_threads()
    with k.role("asks", 0), k.elected(), k.while_(more.ne(0)):
        k.mbarrier.wait(finished, (count & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(arrived, 16)
        k.clc.try_cancel(response, arrived)
        k.mbarrier.wait(arrived, count & 1)
        k.clc.query_is_canceled(more, response)
        k.assign(x, -1)
        with k.if_(more.ne(0)):
            k.clc.query_first_ctaid(x, response)
        k.fence.proxy_async("shared::cta")
        k.mem.store(number[0], x)
        k.mbarrier.arrive(published)
        k.assign(count, count + 1)
    with k.role("marks", 1), k.elected(), k.while_(x >= 0):
        if odd_ones == "elsewhere":
            k.mem.store(done[x & 1, x], x + 1)
        else:
            with k.if_((x & 1).eq(0)):
                k.mem.store(done[0, x], x + 1)
        k.mbarrier.wait(published, count & 1)
        k.mem.load(x, number[0])
        k.mbarrier.arrive(finished)
        k.assign(count, count + 1)


@needs.compiler
@pytest.mark.parametrize(
    ("odd_ones", "verdict"), [("elsewhere", "proved"), ("left out", "bounded")]
)
def test_what_an_answer_decides_by_way_of_shared_memory(odd_ones: str, verdict: str) -> None:
    source, report = back(Case(tiles, {"odd_ones": odd_ones}, "bugs", "proved"))
    assert report.verdict == verdict, report.reasons
    if verdict == "bounded":
        (reason,) = report.reasons
        line = next(n for n in range(1, 500) if f"kernel.cu:{n})" in reason)
        asked = source.loc(line)
        assert reason.startswith("which clusters are cancelled may decide what is executed")
        assert asked is not None
        text = Path(__file__).read_text().splitlines()[asked.line - 1]
        assert "k.if_((x & 1)" in text


@needs.compiler
@pytest.mark.parametrize(
    ("odd_ones", "verdict"), [("elsewhere", "proved"), ("left out", "bounded")]
)
def test_clusters_whose_own_number_goes_by_way_of_shared_memory(
    odd_ones: str, verdict: str
) -> None:
    params = {"odd_ones": odd_ones, "own": "handed over"}
    _, report = back(Case(tiles, params, "bugs", "proved"))
    assert report.verdict == verdict, report.reasons
    assert report.reasons == () or "which clusters are cancelled" in report.reasons[0]


@kernel(target="sm_100a", warps=1)
def late_tile(k: Builder, *, asks: int = 5) -> None:
    """CTA 5 waits for ever after it has asked ``asks`` times.

    The number that says so lies in shared memory, where nobody looks before.
    """
    k.launch(grid=8)
    response, own = k.shared("response", u32, (4,)), k.shared("own", s32, (1,))
    arrived, never = k.mbarriers("arrived"), k.mbarriers("never")
    more, x, count = k.var("more", 1), k.var("x", 0), k.var("count", 0)
    with k.one_thread():
        k.mbarrier.init(arrived, 1)
        k.mbarrier.init(never, 1)
        k.mem.store(own[0], k.cta_x)
    k.sync_threads()
    with k.elected(), k.while_(more.ne(0)):
        k.fence.proxy_async("shared::cta")
        k.mbarrier.arrive_expect_tx(arrived, 16)
        k.clc.try_cancel(response, arrived)
        k.mbarrier.wait(arrived, count & 1)
        k.clc.query_is_canceled(more, response)
        k.assign(count, count + 1)
        with k.if_(count.eq(asks)):
            k.mem.load(x, own[0])
            with k.if_(x.eq(5)):
                k.mbarrier.wait(never, 0)


@needs.compiler
@pytest.mark.parametrize(("asks", "verdict"), [(5, "failed"), (9, "proved")])
def test_what_tells_clusters_apart_only_after_some_tiles_is_found(asks: int, verdict: str) -> None:
    """Eight CTAs ask for a ninth one in vain."""
    _, report = back(Case(late_tile, {"asks": asks}, "bugs", "proved"))
    assert report.verdict == verdict, report.reasons
    assert report.rules <= {"deadlock"}
