"""Promela of PTX and other machine code: what each warp does, written out, or why it cannot be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilesim.cli import main
from tilesim.export import NotExportable, to_promela
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower as lower_ptx
from tilesim.transforms.lower import lower

from . import programs
from .test_promela import processes

HEAD = """.version 9.4
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry k()
.reqntid 64
{
.reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %rd<9>;
"""
#: the line of the first line of a body
FIRST = 9
INIT = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.ne.s32 %p0, %r2, 0;
@%p0 bra INIT;
mbarrier.init.shared::cta.b64 [%r1], 64;
mbarrier.init.shared::cta.b64 [%r1+8], 1;
INIT: bar.sync 0;
"""
#: three rounds on two barriers that take turns
ROUNDS = """mov.u32 %r3, 0;
LOOP: and.b32 %r4, %r3, 1; shl.b32 %r5, %r4, 3; add.u32 %r6, %r1, %r5; shr.u32 %r7, %r3, 1;
@%p0 bra SKIP;
mbarrier.arrive.shared::cta.b64 _, [%r6];
SKIP: L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r6], %r7;
@!%p1 bra L;
add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 3;
@%p2 bra LOOP;
"""


def model(body: str, *, grid: int = 1, cluster: int = 1) -> str:
    module = read(f"{HEAD}{body}ret;\n}}\n", "k.ptx")
    launch = Launch("k", (grid, 1, 1), (64, 1, 1), (cluster, 1, 1), 1024)
    return to_promela(lower_ptx(module, module.entries[0], launch))


def steps(text: str, process: str) -> list[str]:
    """The statements of a process, those of lists of several apart."""
    return [re.sub(r"d_step \{ | \};?$|;$", "", line) for line in processes(text)[process]]


def test_every_round_of_a_loop_is_written_out_with_its_barrier_and_parity() -> None:
    text = model(INIT.replace("64;", "1;") + ROUNDS)
    assert "#define M_smem_0 0" in text
    assert "#define M_smem_8 1" in text
    first = steps(text, "cta0_warp0")
    arrived = [s for s in first if "credit" in s]
    assert arrived == [f"at = M_smem_{n}; credit(at, 1, 0)" for n in (0, 8, 0)]
    for process in ("cta0_warp0", "cta0_warp1"):
        waits = [s for s in steps(text, process) if "phase[" in s]
        assert [re.findall(r"phase\[M_smem_(\d)\] != (\d)", s.replace(" & 1)", "").replace("(", ""))
                for s in waits] == [[("0", "0")], [("8", "0")], [("0", "1")]]  # fmt: skip
    assert not [s for s in steps(text, "cta0_warp1") if "credit" in s or "initialise" in s]


def test_arrivals_of_lanes_are_counted_and_places_are_said() -> None:
    text = model(INIT + "mbarrier.arrive.shared::cta.b64 _, [%r1];\n")
    assert "credit(at, 32, 0)" in "\n".join(steps(text, "cta0_warp1"))
    assert f"k.ptx:{FIRST + 5} mbarrier.arrive */" in text
    one = model(INIT + "@!%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];\n")
    assert "credit(at, 1, 0)" in "\n".join(steps(one, "cta0_warp0"))
    assert "credit" not in "\n".join(steps(one, "cta0_warp1"))


@pytest.mark.parametrize("lane", ["0", "31"])
def test_the_number_of_a_warp_that_one_lane_tells_decides(lane: str) -> None:
    """As `__shfl_sync(threadIdx.x / 32, 0)` asks for it."""
    asked = f"shr.u32 %r3, %r2, 5; shfl.sync.idx.b32 %r4|%p2, %r3, {lane}, 31, -1;\n"
    guarded = "setp.ne.s32 %p1, %r4, 0;\n@%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];\n"
    text = model(INIT + asked + guarded)
    assert "credit" not in "\n".join(steps(text, "cta0_warp0"))
    assert "credit(at, 32, 0)" in "\n".join(steps(text, "cta0_warp1"))


def test_an_arrival_on_a_barrier_of_another_cta() -> None:
    remote = "mapa.shared::cluster.u32 %r3, %r1, 1;\n" \
        "@!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3+8];\n"  # fmt: skip
    text = model(INIT + remote, grid=2, cluster=2)
    (there,) = (s for s in steps(text, "cta0_warp0") if "credit" in s)
    assert there.endswith("running(1); at = 1 * MBARRIERS + M_smem_8; credit(at, 1, 0)")
    (here,) = (s for s in steps(text, "cta1_warp0") if "credit" in s)
    assert "running" not in here


@pytest.mark.parametrize("name", ["carried", "cluster"])
def test_a_program_without_loops_is_the_same_model_from_its_machine_code(name: str) -> None:
    program = getattr(programs, name)()
    tree, machine = to_promela(program), to_promela(lower(program))
    if "do  /*" not in tree:
        assert processes(machine) == processes(tree)
    assert [*processes(machine)] == [*processes(tree)]


LOADED = "ld.shared.u32 %r3, [%r1+64]; setp.eq.u32 %p3, %r3, 7;\n"


@pytest.mark.parametrize(
    ("body", "line", "why"),
    [
        (LOADED + "@%p3 bra END;\nbar.sync 1, 64;\nEND:\n", 6, "which ld sets at k.ptx:14"),
        (LOADED + "@%p3 mbarrier.arrive.shared::cta.b64 _, [%r1];\n", 6, "which ld sets"),
        (
            "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n@%p1 bra END;\nbar.sync 0;\n"
            "END:\n", 6, "an answer that differs between schedules",
        ),
        (f"SPIN: {LOADED}@%p3 bra SPIN;\n",
         6, "which ld sets"),
        ("shl.b32 %r3, %r2, 3; and.b32 %r3, %r3, 8; add.u32 %r3, %r1, %r3;\n"
         "mbarrier.arrive.shared::cta.b64 _, [%r3];\n", 6, "its address"),
        ("@%p0 bra ELSE;\nmbarrier.arrive.shared::cta.b64 _, [%r1];\nbra END;\n"
         "ELSE: mbarrier.arrive.shared::cta.b64 _, [%r1+8];\nEND:\n", 5, "in both arms"),
        ("mov.u32 %r3, 0;\nL: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 90000;\n@%p2 bra L;\n", 6,
         "more than 50,000 instructions"),
    ],
)  # fmt: skip
def test_what_the_model_does_not_have_is_an_error_with_its_line(
    body: str, line: int, why: str
) -> None:
    with pytest.raises(NotExportable) as caught:
        model(INIT + body)
    assert why in str(caught.value)
    assert abs(caught.value.loc.line - FIRST - line) <= 1, str(caught.value)


def test_a_branch_on_data_that_leads_to_data_is_left_out() -> None:
    text = model(f"{INIT}{LOADED}@%p3 bra END;\nmov.u32 %r4, 1;\nEND: bar.sync 0;\n")
    assert len([s for s in steps(text, "cta0_warp1") if "join(" in s]) == 2
    with pytest.raises(NotExportable, match=r"%r4, set by mov at k.ptx:17 under a condition"):
        model(
            f"{INIT}mov.u32 %r4, 0;\n{LOADED}@%p3 bra END;\nmov.u32 %r4, 1;\nEND: bar.sync %r4;\n"
        )


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(f"{HEAD}{INIT}ret;\n}}\n")
    launch = {"schema": "tilesim.launch/1", "entry": "k", "grid": [1], "dynamic_shared": 1024}
    path.with_suffix(".json").write_text(json.dumps(launch))
    result = CliRunner().invoke(main, ["export", "--promela", str(path)])
    assert result.exit_code == 0, result.output
    assert "active proctype cta0_warp1()" in result.output
    path.write_text(f"{HEAD}{INIT}{LOADED}@%p3 bar.sync 0;\nret;\n}}\n")
    result = CliRunner().invoke(main, ["export", "--promela", str(path)])
    assert result.exit_code == 2
    assert f"{path}:15: barrier.sync cannot be exported: what it does depends on" in result.output


@pytest.mark.parametrize("chance", ["mov.u32 %r9, %clock;", "activemask.b32 %r9;"])
def test_what_chance_decides_is_not_in_the_model(chance: str) -> None:
    body = f"{INIT}{chance} and.b32 %r9, %r9, 1; setp.eq.u32 %p3, %r9, 0;\n@%p3 bar.sync 1;\n"
    with pytest.raises(NotExportable, match=r"r9, which .* sets at k\.ptx:14"):
        model(body)
