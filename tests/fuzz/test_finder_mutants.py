"""The mutants of tilesim's own code: what is changed, and that a program is seen to expose one."""

from __future__ import annotations

import ast
import json
import pickle
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.finder_mutants.__main__ import PARTS, column, harmless, modules, table
from benchmarks.finder_mutants.corpus import SUFFIX, Check, result_of
from benchmarks.finder_mutants.judge import Executed, Outcome, execute
from benchmarks.finder_mutants.mutate import changed, changes, drawn, file_of, mutants
from tilesim import Builder
from tilesim.checker import check
from tilesim.ir.program import Program

SOURCE = '''
def f(a, b):
    """A text."""
    if a == 1 and not b:
        f(a, 2)
    return min(x for x in b if x)
'''


def test_each_kind_of_change() -> None:
    assert [says for _, says, _ in changes(ast.parse(SOURCE))] == [
        "never: if a == 1 and (not b)", "always: if a == 1 and (not b)",
        "without a == 1 in a == 1 and (not b)", "without not b in a == 1 and (not b)",
        "a == 1 -> a != 1", "1 -> 2", "not b -> b",
        "without f(a, 2)", "2 -> 3",
        "min((x for x in b if x)) -> max((x for x in b if x))", "without if x",
    ]  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_each_mutant_differs_from_its_module_and_compiles(part: str) -> None:
    for mutant in drawn(modules(part), 5, seed=1):
        tree = changed(mutant)
        assert ast.dump(tree) != ast.dump(ast.parse(file_of(mutant.module).read_text())), mutant
        compile(tree, mutant.module, "exec")


def test_the_same_seed_draws_the_same() -> None:
    assert drawn(modules("lanes"), 9, seed=3) == drawn(modules("lanes"), 9, seed=3)


def unlocked(*, fixed: bool) -> Program:
    """Two warps store to one word; in the fixed one a barrier is between them."""
    from tilesim import u32

    k = Builder("unlocked", warps=2)
    word = k.shared("word", u32, (1,))
    with k.one_thread(0):
        k.mem.store(word[0], 1)
    if fixed:
        k.sync_threads()
    with k.one_thread(1):
        k.mem.store(word[0], 2)
    return k.finish()


def test_a_wrong_program_exposes_a_mutant(tmp_path: Path) -> None:
    """Without the report of races, the race is a false proof, and the right twin says nothing."""
    programs = []
    for name, fixed in (("wrong", False), ("right", True)):
        result = result_of(check(unlocked(fixed=fixed)), 0)
        path = tmp_path / f"{name}{SUFFIX}"
        path.write_bytes(pickle.dumps(Check(unlocked(fixed=fixed), {}, result)))
        found = execute(path, ["tilesim.sim.observers.races"])
        assert found is not None
        assert found.result.is_wrong != fixed
        assert found.result.work
        programs.append(found)
    wrong, right = programs
    lines = set(wrong.lines["tilesim.sim.observers.races"])
    lines -= set(right.lines["tilesim.sim.observers.races"])
    (mutant, *_) = (m for m in mutants("tilesim.sim.observers.races") if m.line in lines)
    assert judged(tmp_path, mutant.module, mutant.number, wrong).wrong
    assert judged(tmp_path, mutant.module, mutant.number, right).kind == "alive"


def test_what_leaves_out_less_is_no_gap() -> None:
    """A mutant that is alive counts as harmless if programs under it execute more, never fewer."""
    silent = Outcome("m", 0, 1, "a change", True, "alive", 9)
    assert column(silent) == "alive"
    assert column(replace(silent, more=2)) == "more work only"
    assert column(replace(silent, more=2, less=1)) == "alive"
    assert column(replace(silent, kind="not executed")) == "not executed"
    (module, reasons), *_ = harmless().items()
    known = replace(silent, module=module, change=next(iter(reasons)))
    assert column(known) == "harmless by reading"
    assert column(replace(known, kind="error")) == "other verdict, rule or error"
    found = replace(silent, kind="other finding", program="p")
    assert column(found) == "other finding"
    assert column(replace(found, wrong=False)) == "right programs only"
    unearned = replace(found, kind="unearned claim", wrong=False)
    assert column(unearned) == "other verdict, rule or error"
    rows = table({"lanes": [silent, replace(silent, more=1), found, replace(found, wrong=False)]})
    assert rows.splitlines()[-1].endswith("| 50 % |")


def test_what_is_harmless_by_reading_is_a_mutant_of_today() -> None:
    for module, reasons in harmless().items():
        assert {*reasons} <= {mutant.says for mutant in mutants(module)}, module


def judged(folder: Path, module: str, number: int, program: Executed) -> Outcome:
    """What one program says of a mutant, in a process of its own."""
    entry = asdict(program) | {"seconds": 1.0, "lines": {}}
    asked = {"wrong": program.result.is_wrong, "limit": 60.0, "programs": [entry]}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.finder_mutants", "one", folder, module, str(number)],
        input=json.dumps(asked),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))
