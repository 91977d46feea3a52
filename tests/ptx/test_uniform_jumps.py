"""`.uni`: lanes that execute a jump go one way. One at which they may not is refused."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import ARRIVE, HEAD, INIT, WAIT, program, report
from tilesim.checker import Report, check
from tilesim.checker.certificates import certified
from tilesim.errors import InvalidProgram
from tilesim.ir.verify import verify
from tilesim.proof.check import certify
from tilesim.ptx.launch import Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.plain import plain
from tilesim.ptx.program import lower

START = (
    "mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [g]; mov.u32 %r2, %ctaid.x; mov.u32 %r3, 0; "
    "shr.u32 %r4, %r1, 5; and.b32 %r5, %r1, 31; mov.u32 %r9, smem;\n"
)
#: by what decides, the number of which 0 is asked, and whether lanes of a warp have the same
NUMBERS = {
    "a lane": ("", "%r5", False),
    "a warp": ("", "%r4", True),
    "a cta": ("", "%r2", True),
    "a word": ("ld.global.u32 %r6, [%rd1];", "%r6", True),
    "a word of each lane": (
        "mul.wide.u32 %rd2, %r5, 4; add.u64 %rd2, %rd2, %rd1; ld.global.u32 %r6, [%rd2];", "%r6",
        False,
    ),
    "a lane's, handed to all": ("shfl.sync.idx.b32 %r6, %r5, 3, 31, -1;", "%r6", True),
    "an elected lane": ("elect.sync _|%p4, -1; selp.u32 %r6, 1, 0, %p4;", "%r6", False),
}  # fmt: skip
JUMPS = {
    "bra": "@%p1 bra.uni A;\nadd.u32 %r3, %r3, 1;\nA:\n",
    "ret": "@!%p1 ret.uni;\nadd.u32 %r3, %r3, 1;\n",
    "brx.idx": "selp.u32 %r7, 1, 0, %p1;\nT: .branchtargets A, B;\nbrx.idx.uni %r7, T;\n"
    "A: add.u32 %r3, %r3, 1;\nB:\n",
    "a loop": "A: add.u32 %r3, %r3, 1; setp.le.u32 %p2, %r3, {number};\n@%p2 bra.uni A;\n",
}  # fmt: skip
PARAMS, VALUES = (".param .u64 g",), (Pointer("g", 4096),)


def _report(body: str) -> Report:
    return report(body, warps=2, params=PARAMS, values=VALUES)


def _certified(body: str) -> bool:
    mir = program(body, warps=2, params=PARAMS, values=VALUES, by=plain)
    return certify(mir).verdict == "certified"


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("number", NUMBERS)
def test_lanes_go_one_way_at_a_jump_that_says_so(number: str, jump: str) -> None:
    before, register, same = NUMBERS[number]
    test = f"setp.eq.u32 %p1, {register}, 0;\n"
    body = START + before + test + JUMPS[jump].format(number=register)
    without = body.replace(".uni", "")
    verdict = _report(without).verdict
    assert verdict == ("bounded" if "word" in number and jump == "brx.idx" else "proved")
    if same:
        assert _report(body).verdict == verdict
        # where data decides, the kernel does not know whether lanes have the same
        assert _certified(body) is (number != "a word" and _certified(without))
        return
    assert not _certified(body)
    with pytest.raises(InvalidProgram, match="lanes of a warp may diverge at this jump"):
        _report(body)


@pytest.mark.parametrize("same", [False, True])
def test_a_call_that_is_made_by_all_lanes_or_by_none(same: bool) -> None:
    """A predicate and `.uni` at a call, which is inlined behind a branch."""
    head, tail = HEAD.format(params=".param .u64 g").split(".visible", 1)
    function = ".func f()\n{\n.reg .b32 x;\nmov.u32 x, 1;\nret;\n}\n.visible"
    test = f"setp.eq.u32 %p1, {'%r4' if same else '%r5'}, 0;\n@%p1 call.uni f;\n"
    module = read(f"{head}{function}{tail}{START}{test}ret;\n}}\n", "k.ptx")
    launch = Launch("k", (1, 1, 1), (64, 1, 1), (1, 1, 1), 64, params=VALUES)
    if same:
        assert check(lower(module, module.entries[0], launch)).verdict == "proved"
        return
    with pytest.raises(InvalidProgram, match="lanes of a warp may diverge at this jump"):
        check(lower(module, module.entries[0], launch))
    assert certify(plain(module, module.entries[0], launch)).rule == "uniform"


def test_a_wait_that_is_left_by_such_a_jump() -> None:
    """As CUTLASS and others write it."""
    wait = (
        "L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r9], 0;\n@%p2 bra.uni D;\n"
        "bra.uni L;\nD:\n"
    )
    start = START + "setp.eq.u32 %p1, %r1, 0;\n@%p1 mbarrier.init.shared::cta.b64 [%r9], 1;\n"
    arrive = "bar.sync 0;\n@%p1 mbarrier.arrive.shared::cta.b64 _, [%r9];\n"
    assert _report(start + arrive + wait).verdict == "proved"
    never = _report(start + "bar.sync 0;\n" + wait)
    assert never.rules == {"deadlock"}


@pytest.mark.parametrize("to", ["NEXT", "OUT"])
@pytest.mark.parametrize("half", ["%r3", "0"])
def test_parts_of_a_warp_do_not_come_to_a_jump_apart(half: str, to: str) -> None:
    """One half goes one way in the first turn, the other one another way in the second, where the
    first one may have ended: lanes that are late may execute it together. The same half twice may
    not."""
    body = START + (
        "shr.u32 %r6, %r5, 4;\nbra AGAIN;\nOUT: ret;\n"
        f"AGAIN: setp.ne.u32 %p1, %r6, {half}; @%p1 bra NEXT;\n"
        f"setp.eq.u32 %p2, %r3, 0; @%p2 bra.uni {to};\nadd.u32 %r7, %r3, 1;\n"
        "NEXT: add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 2; @%p3 bra AGAIN;\n"
    )
    assert _certified(body) == (half == "0")
    assert _certified(body.replace(".uni", ""))


@pytest.mark.parametrize("right", [True, False])
def test_a_poll_that_is_left_by_such_a_jump_is_rechecked(right: bool) -> None:
    """As CuTe DSL writes it: it is seen when it is run that lanes leave it together."""
    poll = WAIT.replace("@!%p1 bra L;", "@%p1 bra.uni DONE; bra.uni L;\nDONE:\n")
    poll = f"setp.ne.b32 %p2, %r5, 0; @%p2 bra REST;\n{poll}REST:\n"
    lanes = "elect.sync _|%p1, -1;" + JUMPS["bra"]
    mir = program(START + INIT + ARRIVE + (poll if right else lanes), params=PARAMS,
                  values=VALUES, by=plain)  # fmt: skip
    with pytest.raises(InvalidProgram):
        verify(mir)
    _, answer = certified(mir, "practice", (), None)
    assert answer.verdict == ("certified" if right else "refuted")
    assert answer.rule == ("" if right else "uniform")
