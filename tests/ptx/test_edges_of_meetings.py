"""Instructions that all lanes of a warp execute together, to which some lanes come later, or not.

The first eight lanes are in an arm of a branch: they wait there for an arrival of the others, end,
or execute another instruction of the same kind. What waits for them has to wait as long as they may
come, and no longer.
"""

from __future__ import annotations

import pytest

from tests.ptx.test_check import lines, report
from tilesim.ir.program import Strict

#: %p1: the first eight lanes, %p2: the last one; a barrier for one arrival is at %r1, and words of
#: each lane at %r5
START = """\
mov.u32 %r1, smem; mov.u32 %r3, %tid.x; setp.eq.u32 %p0, %r3, 0; setp.lt.u32 %p1, %r3, 8;
setp.eq.u32 %p2, %r3, 31; setp.eq.u32 %p3, %r3, 5; mov.u32 %r9, 0; mov.f32 %f1, 0f00000000;
@%p0 mbarrier.init.shared::cta.b64 [%r1], 1; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
shl.b32 %r5, %r3, 4; add.u32 %r5, %r5, %r1; st.shared.v4.u32 [%r5+1024], {0, 0, 0, 0};
bar.warp.sync -1;
"""
AT = START.count("\n")
#: of these, PTX says that all lanes execute the same one
WHOLE = {
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r7}, [%r5+1024];\n",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5+1024], {%r3};\n",
    "movmatrix": "movmatrix.sync.aligned.m8n8.trans.b16 %r7, %r3;\n",
    "mma": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, "
    "{%r3,%r3,%r3,%r3}, {%r3,%r3}, {%f1,%f2,%f3,%f4};\n",
}
#: and of these, the lanes of a mask that have not exited
MASKED = {
    "shfl": "shfl.sync.bfly.b32 %r7, %r3, 1, 31, -1;\n",
    "vote": "vote.sync.ballot.b32 %r7, %p3, -1;\n",
    "redux": "redux.sync.add.u32 %r7, %r3, -1;\n",
    "match": "match.any.sync.b32 %r7, %r3, -1;\n",
    "bar.warp": "bar.warp.sync -1;\n",
    "elect": "elect.sync _|%p5, -1;\n",
}
EVERY = WHOLE | MASKED
WAIT = "@!%p1 bra A;\nL: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], 0;\n@!%p4 bra L;\nA: "
WAIT_ALL = WAIT.replace("@!%p1 bra A;\n", "").replace("A: ", "")
ARRIVE = "@%p2 mbarrier.arrive.shared::cta.b64 _, [%r1];\n"


@pytest.mark.parametrize("strict", ["practice", "ptx"])
@pytest.mark.parametrize("name", EVERY)
def test_lanes_that_come_later(name: str, strict: Strict) -> None:
    """What they wait for comes before the others wait for them, or only then."""
    right = report(START + WAIT + ARRIVE + EVERY[name], strict=strict)
    assert right.verdict == ("bounded" if (name, strict) == ("elect", "ptx") else "proved")
    wrong = report(START + WAIT + EVERY[name] + ARRIVE, strict=strict)
    assert wrong.rules == {"deadlock"}
    assert lines(wrong) == [AT + 1]


@pytest.mark.parametrize("name", EVERY)
def test_lanes_that_end_before(name: str) -> None:
    found = report(f"{START}@!%p1 bra A;\nret;\nA: {EVERY[name]}")
    if name in MASKED:
        assert found.verdict == "proved"
    else:
        assert found.rules == {"participation"}
        assert lines(found) == [AT + 2]
        assert "8 of its lanes have exited" in found.findings[0].message


@pytest.mark.parametrize("name", [name for name in EVERY if name != "bar.warp"])
def test_lanes_that_a_guard_leaves_out(name: str) -> None:
    found = report(f"{START}@%p1 {EVERY[name]}")
    assert found.rules == {"participation"}
    assert lines(found) == [AT]
    assert report(START + EVERY[name]).verdict == "proved"


@pytest.mark.parametrize(
    ("meet", "rule"),
    [
        ("bar.warp.sync -1;", "participation"),
        ("barrier.sync 1, 32;", "deadlock"),
        ("barrier.cta.sync 1;", "deadlock"),
    ],
)
def test_lanes_that_a_guard_leaves_out_go_on(meet: str, rule: str) -> None:
    """To another such instruction, or to their end, as a branch around it would let them: neither
    does PTX say of these that all lanes execute the same one."""
    read = "xor.b32 %r6, %r5, 128; ld.shared.u32 %r7, [%r6+1024];\n"
    store = "st.shared.u32 [%r5+1024], %r3;\n"
    both = f"{store}@%p1 {meet}\n@!%p1 {meet}\n{read}"
    assert report(START + both, strict="ptx").verdict == "proved"
    assert report(START + store + read).rules == {"race"}
    assert report(f"{START}@%p1 {meet}\n", strict="ptx").verdict == "proved"
    waits = f"@%p1 {meet}\n@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];\n{WAIT_ALL}"
    assert report(START + waits).rules == {rule}


@pytest.mark.parametrize("name", EVERY)
def test_lanes_that_execute_another_one(name: str) -> None:
    arms = f"@!%p1 bra A;\n{EVERY[name]}bra.uni B;\nA: {EVERY[name]}B: mov.u32 %r9, 1;\n"
    found = report(START + arms)
    if name in WHOLE:
        assert found.rules == {"participation"}
        assert lines(found) == [AT + 1]
    elif name == "bar.warp":
        assert found.verdict == "proved"
    else:
        assert found.verdict == "unsupported"
        assert "by lanes that execute it at several places" in found.findings[0].message


#: instructions of two arms, and whether lanes may execute one each to wait for the others
PAIRS = {
    "shuffles of all, and in parts": (
        "shfl.sync.down.b32 %r7, %r3, 1, 31, -1;\n",
        "shfl.sync.down.b32 %r7, %r3, 1, 0x181f, -1;\n",
        True,
    ),
    "of another lane": (
        "shfl.sync.up.b32 %r7, %r3, 1, 0, -1;\n", "shfl.sync.up.b32 %r7, %r3, 2, 0, -1;\n", True
    ),
    "up and down": (
        "shfl.sync.up.b32 %r7, %r3, 1, 0, -1;\n", "shfl.sync.down.b32 %r7, %r3, 1, 31, -1;\n", False
    ),
    "any and all": (
        "vote.sync.any.pred %p5, %p3, -1;\n", "vote.sync.all.pred %p5, %p3, -1;\n", False
    ),
    "sum and maximum": (
        "redux.sync.add.u32 %r7, %r3, -1;\n", "redux.sync.max.u32 %r7, %r3, -1;\n", False
    ),
    "a shuffle and a vote": (MASKED["shfl"], MASKED["vote"], False),
    "a vote and a meeting": (MASKED["vote"], MASKED["bar.warp"], False),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_lanes_that_execute_one_with_other_qualifiers(name: str) -> None:
    """Nothing waits for what lanes do that execute another operation."""
    *both, alike = PAIRS[name]
    for one, other in (both, both[::-1]):
        found = report(f"{START}@!%p1 bra A;\n{one}bra.uni B;\nA: {other}B: mov.u32 %r9, 1;\n")
        if alike:
            assert found.verdict == "unsupported"
            assert "by lanes that execute it at several places" in found.findings[0].message
        else:
            assert found.rules == {"participation"}
            assert lines(found)[0] in (AT + 1, AT + 3)
