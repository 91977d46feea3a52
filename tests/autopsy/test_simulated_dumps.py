"""Autopsies of simulated dumps: a sample of `tests.autopsy.simulated_dump`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.autopsy.hanging_kernels import KERNELS
from tests.autopsy.simulated_dump import caused, said_of, scored
from tests.autopsy.simulated_hang import Hang, Kernel, Stopped, compiled
from tests.gpu import needs
from tilesim.autopsy.pipeline import autopsy
from tilesim.autopsy.waits import (
    MbarrierWait,
    NamedBarrierWait,
    Poll,
    Running,
    WarpWait,
    lanes_of,
)

pytestmark = needs.compiler

#: of each kind of wait one, or two where they can be mixed up
SAMPLE = (
    "mbarrier, token",
    "mbarrier, one lane waits",
    "ring of 3, parity of the iteration",
    "ring of 2, bytes",
    "named barrier, register form",
    "named and CTA barrier",
    "cluster barrier, a CTA does not come",
    "cluster, remote arrival missing",
    "spin on a global flag",
    "spin on a shared flag",
)


@cache
def hung(name: str, seed: int = 0) -> Hang:
    """A kernel that hangs, by its name."""
    one = KERNELS[name]
    return Hang(Kernel(name, compiled(one.source), "sm_90a", one.launch), seed)


@pytest.mark.parametrize("name", SAMPLE)
def test_the_machines_hang_alike(name: str) -> None:
    """Machine code and PTX, each in its own machine, end in the same state: the dump is sound."""
    assert list(hung(name).differences()) == []


@pytest.mark.parametrize("name", SAMPLE)
def test_waits_are_right_without_ptx(name: str, tmp_path: Path) -> None:
    hang = hung(name)
    place = hang.dump().write(tmp_path / "hang.nvcudmp")
    score = scored(hang, autopsy(place, check=False), agrees=True)
    assert score.wrong == ()
    assert score.stands == score.right == score.whole == len(hang.stands)


@pytest.mark.parametrize("name", SAMPLE[2:5])
def test_the_culprit_is_that_of_a_check_with_ptx(name: str, tmp_path: Path) -> None:
    hang = hung(name)
    found = caused(hang, autopsy(hang.dump().write(tmp_path / "hang.nvcudmp")))
    assert (found.kind, found.culprit) == ("same", True), found.why


@pytest.mark.parametrize("seed", range(1, 5))
def test_warps_may_stand_anywhere_in_their_wait(seed: int, tmp_path: Path) -> None:
    """At any place of the loop, up to four instructions behind a barrier, as a newer driver writes
    it, behind other cubins."""
    hang = hung("named and CTA barrier" if seed % 2 else "ring of 2, bytes", seed)
    other = compiled(KERNELS["setmaxnreg"].source)
    dump = hang.dump(release=(590, 44), before=[other])
    score = scored(hang, autopsy(dump.write(tmp_path / "h.nvcudmp"), check=False), agrees=True)
    assert score.wrong == ()
    assert score.right == score.stands


@pytest.mark.parametrize("name", ["ring of 4, parity of the stage", "barrier.red"])
def test_what_is_said_of_a_kernel_that_runs(name: str, tmp_path: Path) -> None:
    """Warps that are stopped anywhere wait for what they come from, or come to, if for anything."""
    kernel = hung(name).kernel
    claims = 0
    for seed, steps in enumerate((60, 110, 160, 240, 320)):
        run = Stopped(kernel, seed, steps)
        found = autopsy(run.dump().write(tmp_path / "run.nvcudmp"), check=False)
        for group, _ in said_of(found):
            for warp in group.warps:
                wait, lane = group.wait, lanes_of(group.lanes)[0]
                near = run.near(group.cta.number, warp, lane)
                if isinstance(wait, MbarrierWait):
                    assert ("mbarrier", wait.address, wait.parity) in near, (seed, warp, wait)
                    claims += 1
                elif isinstance(wait, NamedBarrierWait):
                    assert ("named", wait.id) in near, (seed, warp, wait)
                    claims += 1
                else:
                    assert isinstance(wait, Running | Poll | WarpWait), (seed, warp, wait)
                    if wait.evidence.startswith("has passed BAR"):
                        own = run.machine.ctas[group.cta.number].warps[warp]
                        assert "bar" not in own.waits, (seed, warp)
                        claims += 1
    assert claims > 4


@pytest.mark.parametrize("name", ["ring of 2, bytes", "mbarrier, sleeps in a loop of its own"])
def test_waits_of_code_that_is_not_optimised(name: str, tmp_path: Path) -> None:
    """Loops have their heads anywhere, and their answers are inverted where they are."""
    one = KERNELS[name]
    cubin = compiled(one.source, options=["--ptxas-options=-O0"])
    hang = Hang(Kernel(name, cubin, "sm_90a", one.launch))
    assert list(hang.differences()) == []
    score = scored(hang, autopsy(hang.dump().write(tmp_path / "h"), check=False), agrees=True)
    assert score.wrong == ()
    assert score.right == score.stands == len(hang.stands)


def test_without_a_table_of_lines_the_ptx_is_found_beside(tmp_path: Path) -> None:
    """As nvcc compiles without ``-lineinfo``: no line, no PTX in the dump."""
    one = KERNELS["ring of 2, bytes"]
    hang = Hang(Kernel("ring", compiled(one.source, lines=False), "sm_90a", one.launch))
    dump = hang.dump(release=(575, 20)).write(tmp_path / "hang.nvcudmp")
    assert scored(hang, autopsy(dump, check=False), agrees=False).right == len(hang.stands)
    ptx = tmp_path / "f.ptx"
    ptx.write_text(hung("ring of 2, bytes").image.ptx or "")
    (launch,) = autopsy(dump, ptx).launches
    assert launch.diagnosis is not None
    assert launch.diagnosis.match is not None
    assert launch.diagnosis.match.kind == "same"


def test_what_is_false_is_found(tmp_path: Path) -> None:
    """The comparison sees a wrong parity, and a wrong barrier."""
    hang, other = hung("ring of 3, parity of the iteration"), hung("ring of 2, bytes")
    place = hang.dump().write(tmp_path / "hang.nvcudmp")
    found = autopsy(place, check=False)
    wrong = scored(other, found, agrees=False).wrong
    assert any("it is mbarrier 0x1400 of CTA 0" in text for text in wrong)
    assert any("but it is Mbarrier" in text for text in wrong)


def test_a_check_that_runs_out_of_time_is_no_cause(tmp_path: Path) -> None:
    """The simulator does not see that tries which are bounded are made for ever: no time is left
    for other schedules."""
    hang = hung("mbarrier, tries that are bounded")
    place = hang.dump().write(tmp_path / "hang.nvcudmp")
    (launch,) = autopsy(place, time_limit=0.2).launches
    assert launch.diagnosis is not None
    assert launch.diagnosis.match is None or launch.diagnosis.match.finding is None


def test_an_answer_that_is_dropped_is_not_waited_for(tmp_path: Path) -> None:
    """A loop that asks for a phase and does not look at the answer does not wait for it."""
    hang = hung("mbarrier, an answer that is dropped")
    found = autopsy(hang.dump().write(tmp_path / "hang.nvcudmp"), check=False)
    assert not any(isinstance(g.wait, MbarrierWait) for g, _ in said_of(found))
