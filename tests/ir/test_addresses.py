"""Addresses as values and as operands: text, code, what they may decide, who refuses them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.litmus.sections import all_rows
from tilesim import (
    Builder,
    InvalidProgram,
    Program,
    address_of,
    check,
    mbar_at,
    s32,
    select,
    u32,
    u64,
    view_at,
)
from tilesim.analysis.pointer_table import located
from tilesim.analysis.taint import at_addresses
from tilesim.dsl.to_python import builder_code
from tilesim.export import to_promela
from tilesim.export.errors import NotExportable
from tilesim.ir.expr import Expr
from tilesim.ir.text import mir, parse, to_text
from tilesim.transforms.lower import lower

ROWS = {row.id: row for row in all_rows() if row.id.startswith("LJ")}


@pytest.mark.parametrize("name", ROWS)
def test_programs_with_addresses_are_written_and_read(name: str) -> None:
    program = ROWS[name].build()
    assert parse(to_text(program)) == program
    namespace: dict[str, Program] = {}
    exec(builder_code(program), namespace)
    assert namespace["program"] == program
    machine = lower(program)
    assert mir.parse(mir.to_text(machine)) == machine


def test_addresses_are_calls_in_the_text() -> None:
    text = to_text(ROWS["LJ01"].build())
    assert "mov p, address(buffer)" in text
    assert "mbarrier.init mbar_at(p + 64), 32" in text
    assert "st at(p + 128 + 4 * %lane_id, s32), 2 * %lane_id" in text


def _decides(make: Callable[[Builder, Expr], Expr]) -> bool:
    k = Builder("decides", warps=1)
    k.launch(grid=2, cluster=2)
    out, w = k.tensor("out", s32, (32,)), k.shared("w", s32, (32,))
    p = k.var("p", 0, u32)
    k.assign(p, address_of(w[3]))
    with k.if_(make(k, p)):
        k.mem.store(out[k.lane_id], 1)
    return bool(located(lower(k.finish())).reasons)


@pytest.mark.parametrize(
    "make",
    [
        lambda k, p: (p & 0x0F000000).eq(0),  # the CTA's rank
        lambda k, p: (p >> 24).eq(k.cluster_rank),
        lambda k, p: ((p & 0xFEFFFFFF) - (p & 0xFFFFFF)).eq(0),  # the leader's barrier
        lambda k, p: ((((p >> 4) & 0x3FFF) << 4) - p & 0xFFFF).eq(0),  # as in a descriptor
        lambda k, p: (p % 128).eq(12),
        lambda k, p: ((p ^ 16) - p).eq(16),
        lambda k, p: (((p >> 3 & 48) ^ p) - p).eq(16),  # a swizzle
        lambda k, p: ((k.var("row", p >> 3 & 48, u32) ^ p) - p).eq(16),
        lambda k, p: (p + 64) > p,
        lambda k, p: (p * 4 - 4 * p).eq(0),
    ],
)
def test_what_every_launch_agrees_on_decides(make: Callable[[Builder, Expr], Expr]) -> None:
    assert not _decides(make)


@pytest.mark.parametrize(
    "make",
    [
        lambda k, p: p > 1000,
        lambda k, p: (p >> 12).eq(0),
        lambda k, p: (p & 2048).eq(0),
        lambda k, p: (p * 2 - p).eq(12),
        lambda k, p: (p ^ 1024) > p,
        lambda k, p: (k.var("row", k.lane_id * 64 & 1024, u32) ^ p) > p,
        lambda k, p: (p // 3).eq(4),
    ],
)
def test_what_launches_disagree_on_does_not(make: Callable[[Builder, Expr], Expr]) -> None:
    assert _decides(make)


def test_an_address_that_was_loaded_is_still_one() -> None:
    k = Builder("kept", warps=1)
    out, slot, w = k.tensor("out", s32, (1,)), k.shared("slot", u32, (1,)), k.shared("w", s32, (4,))
    p = k.var("p", 0, u32)
    k.mem.store(slot[0], address_of(w[2]))
    k.sync_warp()
    k.mem.load(p, slot[0])
    with k.if_(p > 64), k.elected():
        k.mem.store(out, 1)
    report = check(k.finish())
    assert report.verdict == "bounded"
    assert any("depends on the value of an address" in reason for reason in report.reasons)


def test_a_number_is_no_address_of_anything() -> None:
    k = Builder("made_up", warps=1)
    k.shared("w", s32, (32,))
    k.mem.store(view_at(4 * k.lane_id, s32), 1)
    report = check(k.finish())
    assert report.verdict == "bounded"
    assert any("not made from one of something declared" in reason for reason in report.reasons)


def _many(words: int) -> Program:
    """100 CTAs store a word each, ``words`` different ones."""
    k = Builder("many", warps=1)
    k.launch(grid=100)
    out = k.tensor("out", s32, (128,))
    with k.elected():
        k.mem.store(view_at(address_of(out) + 4 * (k.cta_x % words), s32, space="global"), 1)
    return k.finish()


def test_what_many_ctas_store_at_addresses_is_compared() -> None:
    right = check(_many(100))
    assert right.verdict == "proved"
    assert "all 100 CTAs, of which 1 were run" in right.covers
    wrong = check(_many(99))
    assert wrong.rules == {"race"}
    assert {p.cta for p in wrong.findings[0].participants} == {0, 99}


def _flag_at(wide: bool, other: bool) -> Program:
    """A word that counts, in which an access at an address may see more or other things."""
    k = Builder("flag", warps=2)
    flag, far = k.tensor("flag", s32, (2,)), k.tensor("far", s32, (2,))
    g, seen = k.var("g", address_of(flag), u64), k.var("seen", 0, u64 if wide else s32)
    if other:
        k.assign(g, select(k.lane_id < 33, g, address_of(far)))
    with k.role("T0", 0), k.elected():
        k.mem.store(flag[0], 1, sem="release", scope="gpu")
    with k.role("T1", 1), k.elected(), k.while_(seen.eq(0)):
        word = view_at(g, u64 if wide else s32, space="generic")
        k.mem.load(seen, word, sem="acquire", scope="gpu")
    return k.finish()


def test_an_address_says_which_tensor_it_is_of() -> None:
    named = [t.name for t in at_addresses(located(lower(_flag_at(False, False))).mir)]
    assert named == ["flag"]
    assert check(_flag_at(False, False)).verdict == "proved"
    (either,) = at_addresses(located(lower(_flag_at(False, True))).mir)
    assert (either.name, either.among) == (".global", ("far", "flag"))
    assert check(_flag_at(False, True)).verdict == "bounded"


def test_a_wider_access_at_an_address_is_not_one_of_the_word() -> None:
    report = check(_flag_at(True, False))
    assert (report.verdict, {f.rule for f in report.findings}) == ("failed", {"race"})


def test_models_refuse_addresses() -> None:
    k = Builder("refused", warps=1)
    w = k.shared("w", s32, (32,))
    with k.elected():
        k.mbarrier.init(mbar_at(address_of(w)), 1)
    program = k.finish()
    with pytest.raises(NotExportable, match="no mbarriers at addresses"):
        to_promela(program)


def test_the_address_of_a_peers_memory_is_for_mapa() -> None:
    k = Builder("peer", warps=1)
    k.launch(grid=2, cluster=2)
    w = k.shared("w", s32, (32,))
    with pytest.raises(InvalidProgram, match=r"mapa"):
        address_of(w.at(1))
    with pytest.raises(InvalidProgram, match=r"already names the CTA"):
        view_at(address_of(w), s32).at(1)
