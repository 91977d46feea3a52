"""Edits of programs in both forms, and which operands of an instruction they are about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.expr import Const
from tilesim.ir.mir import Branch, Mir
from tilesim.ir.ops.bar import SyncWarp
from tilesim.ir.ops.mbarrier import MbarrierArrive, MbarrierInit, MbarrierWait
from tilesim.ir.program import For, Program
from tilesim.ir.sites import sites
from tilesim.transforms.lower import lower
from tilesim.transforms.rewrite import edited, statements, stretches


@kernel(warps=2)
def _ring(k: Builder) -> None:
    bar = k.mbarriers("bar", 2)
    with k.one_thread():
        k.mbarrier.init(bar[0], 1)
        k.mbarrier.init(bar[1], 1)
    k.sync_threads()
    with k.loop(4) as i:
        with k.role("one", 0), k.elected():
            k.mbarrier.arrive(bar[i % 2])
        with k.role("other", 1):
            k.mbarrier.wait(bar[i % 2], (i // 2) & 1)


PROGRAM = _ring.build()
FORMS: tuple[Program | Mir, ...] = (PROGRAM, lower(PROGRAM))


@pytest.mark.parametrize("program", FORMS, ids=["tree", "machine"])
def test_nothing_edited_is_the_same_program(program: Program | Mir) -> None:
    assert edited(program, {}) == program


def test_edits_of_a_tree_reach_into_regions_that_are_edited_too() -> None:
    places = dict(enumerate(statements(PROGRAM)))
    loop = next(n for n, s in places.items() if isinstance(s, For))
    wait = next(n for n, s in places.items() if isinstance(s, MbarrierWait))
    region = places[loop]
    assert isinstance(region, For)
    longer = replace(region, stop=Const(5))
    new = edited(PROGRAM, {loop: (longer,), wait: (SyncWarp(), places[wait])})
    after = statements(new)
    changed = after[loop]
    assert isinstance(changed, For)
    assert changed.stop == Const(5)
    assert [type(s) for s in after[wait : wait + 2]] == [SyncWarp, MbarrierWait]
    assert len(after) == len(places) + 1
    assert edited(new, {wait: (), loop: (replace(changed, stop=region.stop),)}) == PROGRAM


def test_jumps_lead_to_the_first_of_what_is_put_before_an_instruction() -> None:
    mir = lower(PROGRAM)
    arrive = next(n for n, s in enumerate(statements(mir)) if isinstance(s, MbarrierArrive))
    new = edited(mir, {arrive: (SyncWarp(), mir.code[arrive].what)})
    assert isinstance(new.code[arrive].what, SyncWarp)
    assert new.code[arrive + 1].role == mir.code[arrive].role == "one"
    assert edited(new, {arrive: ()}) == mir


@pytest.mark.parametrize("program", FORMS, ids=["tree", "machine"])
def test_stretches_have_every_instruction_once(program: Program | Mir) -> None:
    found = sorted(n for s in stretches(program) for n in s)
    every = enumerate(statements(program))
    kept = [n for n, s in every if program is PROGRAM or hasattr(s, "mnemonic")]
    assert found == kept


def test_a_stretch_ends_where_a_jump_leads() -> None:
    mir = lower(PROGRAM)
    heads = {i.what.target for i in mir.code if isinstance(i.what, Branch)}
    assert not [s for s in stretches(mir) if heads & set(s[1:])]


def test_sites_are_read_off_the_effects() -> None:
    ops = {type(op): {s.kind: s.name for s in sites(op)} for op in PROGRAM.ops}
    assert ops[MbarrierInit] == {"barrier": "mbar", "count": "count"}
    assert ops[MbarrierArrive]["arrivals"] == "count"
    assert ops[MbarrierWait] == {
        "barrier": "mbar", "phase": "phase", "sem": "sem", "scope": "scope",
    }  # fmt: skip
