"""Loads of tensor memory that nobody waits for: they are over where what they have loaded has been
stored (SEMANTICS U33), and nowhere else."""

from __future__ import annotations

import pytest

from tests.ptx.test_tcgen05 import DESCRIPTOR, FORM, FREE, HEAD, LOAD, ONCE, START, wait
from tilesim.checker import Report, check
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

#: what a warp has loaded goes to 32 bytes of each thread, behind the barriers
PLACE = "shl.b32 %r11, %r2, 5; add.s32 %r11, %r11, %r1;\n"
STORE = (
    "st.shared.v4.b32 [%r11+8448], {%r20,%r21,%r22,%r23};\n"
    "st.shared.v4.b32 [%r11+8464], {%r24,%r25,%r26,%r27};\n"
)
SUM = "add.f32 %r28, %r20, %r21;\n" + "".join(
    f"add.f32 %r28, %r28, %r{n};\n" for n in range(22, 28)
)
ONE = "st.shared.b32 [%r11+8448], %r28;\n"
WAIT = "tcgen05.wait::ld.sync.aligned;\n"
COLUMNS = "{%r20,%r21,%r22,%r23,%r24,%r25,%r26,%r27}"
BACK = f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8], {COLUMNS};\n"
STORED = "tcgen05.wait::st.sync.aligned;\n"
#: columns behind the product's hold something
START_OF_SECOND = (
    "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8+8], {%r2,%r2,%r2,%r2,%r2,%r2,%r2,%r2};\n" + STORED
)


def report(body: str, *, strict: Strict = "practice", free: str = FREE) -> tuple[Report, set[str]]:
    """On a product whose result is loaded, and the lines that findings name."""
    start = START.replace("{descriptor}", str(DESCRIPTOR)).replace("{form}", str(FORM))
    text = HEAD + start + PLACE + ONCE + wait(8200) + body + free
    module = read(text, "k.ptx")
    launch = Launch("k", (1, 1, 1), (128, 1, 1), (1, 1, 1), 16384)
    found = check(lower(module, module.entries[0], launch), strict=strict)
    named = {p.loc.line for finding in found.findings for p in finding.participants}
    return found, {text.splitlines()[line - 1] for line in named}


#: zeros, or what has been loaded
CHOSEN = (
    "".join(f"mov.b32 %r{n}, 0; " for n in range(20, 28))
    + f"\nsetp.eq.u32 %p7, %r3, 5; @%p7 bra NONE;\n{LOAD}NONE:\n"
)


def twice(last: str = "") -> str:
    """Loads in two turns, each of which ends so."""
    back = "add.s32 %r12, %r12, 1; setp.lt.u32 %p7, %r12, 2; @%p7 bra L;\n"
    return f"mov.b32 %r12, 0;\nL:\n{LOAD}{last}{back}"


@pytest.mark.parametrize(
    "body",
    [
        LOAD + STORE,
        LOAD + SUM + ONE,
        CHOSEN + STORE,
        twice(STORE),
        LOAD + BACK + STORED,
    ],
    ids=["stored", "a sum", "or zeros", "in a loop", "by tcgen05.st"],
)
def test_all_that_was_loaded_has_been_stored(body: str) -> None:
    found, _ = report(body)
    assert found.verdict == "proved", found
    assert "U33" in {leaning.name for leaning in found.leanings}
    strict, lines = report(body, strict="ptx")
    assert strict.verdict == "failed"
    assert LOAD.strip() in lines
    waited, _ = report(body.replace(LOAD, LOAD + WAIT), strict="ptx")
    assert waited.verdict == "proved"
    assert not {leaning.name for leaning in waited.leanings} & {"U33"}


#: the second of its registers that is stored, in place of another
LEFT = STORE.replace("%r27", "%r26")
MEET = "bar.sync 0;\n"
DEALLOC = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r9, 32;\n"


@pytest.mark.parametrize(
    "body",
    [
        LOAD,
        LOAD + LEFT,
        LOAD + SUM,
        LOAD + "setp.lt.u32 %p7, %r2, 100;\n" + STORE.replace("st.", "@%p7 st."),
        LOAD + "setp.lt.u32 %p7, %r3, 2;\n@%p7 bra ON;\n" + STORE + "ON:\n",
        twice() + STORE,
        LOAD + "mov.b32 %r24, %r12;\n" + STORE,
        LOAD + BACK.replace("[%r8]", "[%r8+8]"),
    ],
    ids=[
        "not stored", "all but one", "in registers", "of some lanes", "of some warps",
        "of the last turn", "another number", "a tcgen05.st that nobody waits for",
    ],
)  # fmt: skip
def test_some_of_what_was_loaded_has_not_been_stored(body: str) -> None:
    found, lines = report(body)
    assert found.rules == {"tmem-lifetime"}
    assert {LOAD.strip(), DEALLOC.strip()} <= lines


def test_a_load_that_reduces_is_one() -> None:
    """tcgen05.ld.red (sm_103a) sets a register more, which may be all that is stored."""
    reduces = LOAD.replace("ld.", "ld.red.").replace("x8.b32", "x8.max.f32")
    reduces = reduces.replace("}, [", "}, %r28, [")
    found, _ = report(reduces + WAIT)
    assert found.verdict == "proved"
    assert report(reduces + STORE)[0].rules == {"tmem-lifetime"}
    assert report(reduces + STORE + ONE)[0].verdict == "proved"


def test_local_memory_may_be_registers() -> None:
    local = ".local .align 16 .b8 own[32];\nmov.u64 %rd30, own;\n"
    kept = STORE.replace("shared", "local").replace("%r11+8448", "%rd30")
    kept = kept.replace("%r11+8464", "%rd30+16")
    found, lines = report(local + LOAD + kept)
    assert found.rules == {"tmem-lifetime"}
    assert {LOAD.strip(), DEALLOC.strip()} <= lines
    assert report(local + LOAD + kept + STORE)[0].verdict == "proved"


@pytest.mark.parametrize("first", ["stores", "hand-over"])
def test_the_hand_over_comes_behind_the_stores(first: str) -> None:
    end = f"@!%p1 bra END;\n{DEALLOC}END: "
    parts = [STORE, MEET] if first == "stores" else [MEET, STORE]
    found, lines = report(LOAD + parts[0] + parts[1] + end, free="ret;\n}\n")
    if first == "stores":
        assert found.verdict == "proved"
    else:
        assert found.rules == {"tmem-lifetime"}
        assert lines == {LOAD.strip(), DEALLOC.strip()}


@pytest.mark.parametrize("meet", [True, False])
def test_one_lane_hands_on_what_all_lanes_have_stored_where_they_have_met(meet: bool) -> None:
    """The barrier at 8208 takes four arrivals of 32: the product overwrites what was loaded."""
    lane = "and.b32 %r13, %r2, 31; setp.eq.u32 %p7, %r13, 0;\n"
    arrive = "@%p7 mbarrier.arrive.shared::cta.b64 _, [%r1+8208], 32;\n"
    again = wait(8208, label="V") + ONCE.replace("ISSUED", "SECOND") + wait(8200, 1, "X")
    meeting = "bar.warp.sync -1;\n" if meet else ""
    found, lines = report(lane + LOAD + STORE + meeting + arrive + again)
    if meet:
        assert found.verdict == "proved"
    else:
        assert found.rules == {"tcgen05-order"}
        assert LOAD.strip() in lines


def test_a_store_of_what_was_loaded_may_overwrite_it() -> None:
    """The row of an attention's weights, in the columns of its scores."""
    found, _ = report(
        LOAD
        + SUM.replace("%r28, %r20", "%r29, %r20").replace("r28", "r29")
        + BACK.replace(COLUMNS, "{%r29,%r29,%r29,%r29,%r29,%r29,%r29,%r29}")
        + STORED
    )
    assert found.verdict == "proved"
    other = BACK.replace(COLUMNS, "{%r2,%r2,%r2,%r2,%r2,%r2,%r2,%r2}")
    found, lines = report(LOAD + other + STORED + STORE)
    assert "tcgen05-order" in found.rules
    assert lines == {LOAD.strip(), other.strip()}


def test_each_store_overwrites_what_it_is_made_of() -> None:
    """An attention that scales its result: loads and stores in turns, and one wait for all."""
    second = LOAD.replace("[%r8]", "[%r8+8]").replace("%r2", "%r4")
    back = BACK.replace("[%r8]", "[%r8+8]").replace("{%r2", "{%r4").replace(",%r2", ",%r4")
    full = START_OF_SECOND + LOAD + BACK + second + back + STORED
    assert report(full)[0].verdict == "proved"
    crossed = START_OF_SECOND + LOAD + second + BACK.replace("[%r8]", "[%r8+8]") + STORED
    found, lines = report(crossed)
    assert "tcgen05-order" in found.rules
    assert {second.strip(), BACK.replace("[%r8]", "[%r8+8]").strip()} <= lines


def test_a_check_at_ptx_that_ends_early_hides_no_switch() -> None:
    """The address without the warp's lanes (U21) ends it, before the columns are freed."""
    nowhere = LOAD.replace("%r8", "%r9")
    drained, _ = report(nowhere + STORE)
    assert drained.verdict == "proved"
    assert {"U21", "U33"} <= {leaning.name for leaning in drained.leanings}
    waited, _ = report(nowhere + WAIT + STORE)
    assert waited.verdict == "proved"
    assert "U33" not in {leaning.name for leaning in waited.leanings}
