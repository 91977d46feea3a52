"""The plain form of PTX: each instruction of the text by itself, in its order."""

from __future__ import annotations

import pytest

from tests.ir.module_graph import modules
from tests.kernel.test_contract import DEFINITIONS, PLAIN_DEFINITIONS, SHARED, closure, of_plain
from tests.ptx.test_check import ARRIVE, FIRST, INIT, WAIT, program
from tests.ptx.test_replicated import END
from tests.ptx.test_replicated_products import ONCE, SCALED, body
from tests.ptx.test_vectors import HALVES, PAIR, WHOLES
from tests.ptx.test_wmma import SUM, TWO
from tilesim.ir.mir import Branch, Mir
from tilesim.ir.op import Op
from tilesim.proof.check import certify
from tilesim.ptx.launch import Contents, Pointer
from tilesim.ptx.plain import plain
from tilesim.ptx.program import lower

SHARE = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.s32 %r4, %r1, %r3;\n"
    "st.shared.u32 [%r4], %r2;\n{barrier}\nld.shared.u32 %r5, [%r1+128];\n"
)
#: passes, and what they are made of
PASSES = frozenset(
    f"tilesim.ptx.{name}"
    for name in (
        "passes", "passes.forwarding", "passes.simplify", "program",
    )
)  # fmt: skip


def names(mir: Mir) -> list[str]:
    return [i.what.mnemonic if isinstance(i.what, Op) else type(i.what).__name__ for i in mir.code]


def written(mir: Mir) -> list[int]:
    """The lines of the instructions, counted from the first one of the body."""
    return [i.what.loc.line - FIRST for i in mir.code]


def test_it_imports_the_reader_and_definitions_only() -> None:
    own = of_plain()
    assert not own & PASSES
    others = closure(own) - own - DEFINITIONS - PLAIN_DEFINITIONS
    allowed = {"tilesim.limits", "tilesim.wording"}
    assert not {m for m in others - allowed if not SHARED.fullmatch(m)}


def test_what_is_not_plain_is_named() -> None:
    """A module of PTX is part of the plain form, a pass, or about descriptions of launches."""
    about = closure(
        {
            "tilesim.ptx.launch_template",
            "tilesim.ptx.parameters",
            "tilesim.gpu.describe_launch",
        }
    )
    every = {m for m in modules() if m.startswith("tilesim.ptx.")} - {"tilesim.ptx.rules"}
    assert every == of_plain() | PASSES | {m for m in about if m.startswith("tilesim.ptx.")}


def test_a_loop_that_polls_stays_one() -> None:
    text = INIT + ARRIVE + WAIT
    mir = program(text, by=plain)
    poll = names(mir).index("mbarrier.try_wait")
    back = mir.code[poll + 1].what
    assert isinstance(back, Branch)
    assert (back.target, back.sense) == (poll, False)
    assert "mbarrier.wait" not in names(mir)
    assert "mbarrier.wait" in names(program(text))


def test_each_instruction_stands_where_it_is_written() -> None:
    """Also what no instruction reads, what computes a constant, and what goes behind the end."""
    text = (
        "mov.u32 %r1, 5;\nadd.u32 %r2, %r1, 1;\nmov.u32 %r3, %r2;\nsetp.eq.u32 %p1, %r3, 6;\n"
        "selp.b32 %r4, 1, 0, %p1;\nsetp.ne.b32 %p2, %r4, 0;\n@%p2 bra E;\nbar.sync 0;\nE: ret;"
    )
    mir = program(text, by=plain)
    assert written(mir) == [*range(9), 9]
    (branch,) = [i.what for i in mir.code if isinstance(i.what, Branch)]
    assert str(branch.cond) == "%p2"
    assert branch.target == 8
    assert len(program(text).code) < len(mir.code)


def test_registers_of_a_tile_are_made_one_by_one() -> None:
    """The passes make one instruction of what is done to each register of a tile."""
    text = body(ONCE, SCALED.format(a="0f40000000", b="0f40000000")) + END
    params = (".param .u64 x", ".param .u64 y")
    values = (Pointer("x", 4096), Pointer("y", 4096))
    each, merged = (
        program(text, warps=8, params=params, values=values, by=way) for way in (plain, lower)
    )
    count = names(each).count("ptx.access_tile")
    assert count > names(merged).count("ptx.access_tile")


@pytest.mark.parametrize("barrier", ["", "bar.sync 0;"])
def test_both_forms_are_certified_or_none(barrier: str) -> None:
    text = SHARE.format(barrier=barrier)
    answers = [certify(program(text, warps=2, by=way)) for way in (plain, lower)]
    assert [a.verdict for a in answers] == ["certified" if barrier else "refuted"] * 2
    assert {a.rule for a in answers} == {"" if barrier else "uninitialised"}


@pytest.mark.parametrize("other", [*HALVES, *WHOLES])
def test_strong_accesses_of_128_bits_have_one_size(other: str) -> None:
    """Halves of 128 bits are not certified as elements of 64."""
    mir = program(
        PAIR.replace("OTHER", other), warps=2, params=(".param .u64 x",), by=plain,
        values=(Pointer("x", 16, contents=Contents("u64", (0, 0))),),
    )  # fmt: skip
    answer = certify(mir)
    assert answer.verdict == ("certified" if other in WHOLES else "refuted")
    assert answer.rule == ("" if other in WHOLES else "H6")


@pytest.mark.parametrize("stores", [True, False])
def test_a_matrix_is_loaded_by_each_lane_and_stored_by_none_that_is_known(stores: bool) -> None:
    """PTX does not say which lane stores which element: a store of `wmma` is not covered."""
    turned = f"bar.warp.sync -1;\nwmma.store.d.{SUM.format(order='col')} [%r1], {TWO}, 8;"
    mir = program(
        "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 4; add.u32 %r4, %r1, %r3;\n"
        "mov.u64 %rd8, 0; mov.u64 %rd9, 0; st.shared.v2.u64 [%r4], {%rd8, %rd9};\n"
        f"bar.warp.sync -1;\nwmma.load.c.{SUM.format(order='row')} {TWO}, [%r1], 8;\n"
        f"{turned if stores else ''}", by=plain,
    )  # fmt: skip
    answer = certify(mir)
    assert answer.verdict == ("not covered" if stores else "certified")
    assert not stores or "any lane may store any element" in answer.what


@pytest.mark.parametrize(("lane", "said"), [(3, "certified"), (20, "not covered")])
def test_lanes_that_exchange_data_get_it_of_lanes_that_are_there(lane: int, said: str) -> None:
    mir = program(
        "mov.u32 %r4, %tid.x;\nsetp.ge.u32 %p1, %r4, 16;\n@%p1 bra DONE;\nmov.u32 %r2, %clock;\n"
        f"shfl.sync.idx.b32 %r1, %r2, {lane}, 31, 0xffff;\nDONE:", by=plain,
    )  # fmt: skip
    answer = certify(mir)
    assert answer.verdict == said
    assert said == "certified" or "which nothing has set" in answer.what
