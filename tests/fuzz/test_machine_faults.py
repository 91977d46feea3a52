"""Faults in machine code and PTX: the same catalogue, the same places, the same verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.kernels.evidence import verdict
from tilesim.checker import check
from tilesim.cli import main
from tilesim.errors import InvalidProgram
from tilesim.fuzz import FAULTS, mutants
from tilesim.fuzz.cases import Settings, every_mutant, run_case
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower as lower_ptx
from tilesim.strategies.clusters import Multicast
from tilesim.strategies.rings import Ring
from tilesim.transforms.lower import lower

PROGRAMS = {
    "stored": Ring(2, 3, filling="store", stored=True, release="warp").build(),
    "multicast": Multicast(2, 3).build(),
}
#: a tree has more places for them: regions that are no run of instructions, and bounds of loops
STRUCTURE = {"uneven trips", "dead predicate", "every lane", "arrive too early", "arrive too late",
             "arrive before the group wait", "phase not carried"}  # fmt: skip

PTX = """.version 9.4
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry k()
.reqntid 64
{
.reg .pred %p<9>; .reg .b32 %r<9>;
mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.ne.s32 %p0, %r2, 0;
@%p0 bra INIT;
mbarrier.init.shared::cta.b64 [%r1], 64;
mbarrier.init.shared::cta.b64 [%r1+8], 64;
INIT: bar.sync 0;
mbarrier.arrive.shared::cta.b64 _, [%r1];
L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
@!%p1 bra L;
setp.eq.s32 %p2, %r2, 1;
@%p2 st.shared.u32 [%r1+64], %r2;
bar.sync 0;
ld.shared.u32 %r3, [%r1+64];
ret;
LATER: mov.u32 %r4, %r1; st.shared.u32 [%r4], %r3; bra LATER;
}
"""


def machine() -> Mir:
    module = read(PTX, "k.ptx")
    return lower_ptx(module, module.entries[0], Launch("k", (1, 1, 1), (64, 1, 1), (1, 1, 1), 128))


def found(program: Program | Mir) -> str:
    """Whether it is found to be wrong; if it is not, the verdict."""
    try:
        said = verdict(program, schedules=8, budget=5_000)
    except InvalidProgram:
        return "found"
    return "found" if said == "failed" else said


@pytest.mark.parametrize("name", ["stored", pytest.param("multicast", marks=pytest.mark.slow)])
def test_a_fault_in_a_tree_is_one_in_its_machine_code(name: str) -> None:
    tree: dict[tuple[str, int, str], list[str]] = {}
    for mutant in mutants(PROGRAMS[name], [f for f in FAULTS if f not in STRUCTURE]):
        key = mutant.fault, mutant.loc.line, mutant.what
        tree.setdefault(key, []).append(found(mutant.program))
    code: dict[tuple[str, int, str], list[str]] = {}
    for one in mutants(lower(PROGRAMS[name]), [f for f in FAULTS if f not in STRUCTURE]):
        key = one.fault, one.loc.line, one.what
        code.setdefault(key, []).append(found(one.program))
    assert len(tree) > 10
    assert code == tree


def test_every_fault_of_a_kernel_in_ptx_is_found_or_changes_nothing() -> None:
    """What is harmless: the second mbarrier is not used, and `bar.sync` orders what the first one
    does not."""
    program = machine()
    assert check(program).verdict == "proved"
    says = {str(m): found(m.program) for m in mutants(program)}
    assert len(says) == 20
    assert {m for m, v in says.items() if v != "found"} == {
        "init dropped at k.ptx:12: mbarrier.init removed",
        "wrong arrival count at k.ptx:12: count 63 instead of 64",
        "wrong arrival count at k.ptx:12: count 65 instead of 64",
        "wait dropped at k.ptx:15: the wait is removed",
        "relaxed arrival at k.ptx:14: .relaxed instead of .release",
        "relaxed wait at k.ptx:15: .relaxed instead of .acquire",
    }
    assert "barrier of another slot at k.ptx:14: mbarrier.arrive uses the barrier 8 bytes further" \
        in says  # fmt: skip


def test_a_predicate_goes_where_its_instruction_goes_and_a_new_one_has_that_of_the_old() -> None:
    guarded = PTX.replace("mbarrier.arrive", "@!%p0 mbarrier.arrive").replace(", 64;", ", 1;")
    module = read(guarded, "k.ptx")
    program = lower_ptx(
        module, module.entries[0], Launch("k", (1, 1, 1), (64, 1, 1), (1, 1, 1), 128)
    )
    (arrive,) = (i for i in program.code if i.guard is not None and _is_arrive(i.what))
    for fault, guards in (
        ("arrive duplicated", 2), ("relaxed arrival", 1), ("arrive too late", 1),
        ("every lane", 0), ("arrive dropped", None),
    ):  # fmt: skip
        (mutant,) = (m for m in mutants(program, [fault]) if m.loc.line == 14)
        found = [i.guard for i in mutant.program.code if _is_arrive(i.what)]
        assert found == ([] if guards is None else [arrive.guard] * guards or [None]), fault
    found_lines = {m.loc.line for m in mutants(program, ["every lane"])}
    assert {10, 14} <= found_lines
    assert [m.what for m in mutants(program, ["dead predicate"])] == [
        "what follows is skipped up to k.ptx:13", "mbarrier.arrive is never executed",
    ]  # fmt: skip


def _is_arrive(what: object) -> bool:
    return isinstance(what, Op) and what.mnemonic == "mbarrier.arrive"


def written(folder: Path) -> str:
    located = (
        PTX.replace("mbarrier.arrive", ".loc 1 7 0\nmbarrier.arrive")
        .replace("LATER:", ".loc 1 9 0\nLATER:")
        .replace(".visible", '.file 1 "user.py"\n.visible')
    )
    path = folder / "k.ptx"
    path.write_text(located)
    path.with_suffix(".json").write_text(json.dumps({
        "schema": "tilesim.launch/1", "entry": "k", "grid": [1], "dynamic_shared": 128,
    }))  # fmt: skip
    return str(path)


def test_fuzz_tries_every_mutant_of_a_ptx_kernel_once(tmp_path: Path) -> None:
    path = written(tmp_path)
    result = CliRunner().invoke(main, ["fuzz", "--mutate", path])
    assert result.exit_code == 0, result.output
    assert "20 cases (seed 0): 14 failed, 6 proved" in result.output
    assert "arrive dropped" in result.output
    settings = Settings()
    cases = list(every_mutant(path, (), settings, seed=3))
    assert sorted(c.fault or 0 for c in cases) == list(range(20))
    (dropped,) = (o for o in map(run_case, cases) if o.fault == "arrive dropped")
    assert dropped.where == f"arrive dropped at user.py:7 ({path}:16): mbarrier.arrive removed"
    assert (dropped.verdict, dropped.rules) == ("failed", ("deadlock",))


def test_without_mutate_ptx_has_nothing_to_vary(tmp_path: Path) -> None:
    path = written(tmp_path)
    result = CliRunner().invoke(main, ["fuzz", path])
    assert result.exit_code == 2
    assert "tilesim fuzz --mutate injects faults" in result.output
    result = CliRunner().invoke(main, ["fuzz", "--mutate", path, "--param", "n=3"])
    assert result.exit_code == 2
    assert "kernel k has no parameter n; it takes no numbers" in result.output
