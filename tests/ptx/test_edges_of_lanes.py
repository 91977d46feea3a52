"""Lanes of a warp that go their own ways: what they know, wait for, copy and choose; wrong twins.

Each row is a kernel of one warp or two in which lanes act in groups, and the nearest one in which
a lane reads what nothing hands to it, or waits for what does not come. Whatever takes lanes for one
that are several, or lets one know what another has waited for, calls a wrong one right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from tests.ptx.test_check import FIRST, program
from tilesim import checker
from tilesim.checker.report import Report
from tilesim.ptx.launch import Pointer, Scalar

#: %r3: the lane; [%r4] a word of its own, [%r5] a neighbour's, %p1, %p3, %p7: lanes 0, 3, 31; %p4:
#: the first eight, %p6: the last sixteen; mbarriers at 0 (one arrival), 8 (32) and 16 (40)
START = """\
mov.u32 %r1, %tid.x; mov.u32 %r2, smem; and.b32 %r3, %r1, 31; shl.b32 %r4, %r3, 2;
add.u32 %r4, %r4, %r2; xor.b32 %r5, %r4, 4; setp.eq.u32 %p0, %r1, 0; setp.eq.u32 %p1, %r3, 0;
mov.u32 %r6, 1; @%p0 mbarrier.init.shared::cta.b64 [%r2], %r6;
mov.u32 %r6, 32; @%p0 mbarrier.init.shared::cta.b64 [%r2+8], %r6;
mov.u32 %r6, 40; @%p0 mbarrier.init.shared::cta.b64 [%r2+16], %r6;
setp.eq.u32 %p3, %r3, 3; setp.lt.u32 %p4, %r3, 8; setp.ge.u32 %p6, %r3, 16;
setp.eq.u32 %p7, %r3, 31;
ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r3, 4; add.u64 %rd3, %rd1, %rd2; mov.u32 %r9, 0;
@%p0 st.shared.u32 [%r2+48], 0; bar.sync 0;
setp.ge.u32 %p8, %r1, 32; @%p8 bra W;
"""  # fmt: skip
STORE, LOAD = "st.shared.u32 [%r2+64], 7;\n", "ld.shared.u32 %r7, [%r2+64];\n"
SYNC = "bar.warp.sync -1;\n"
ELECT = "elect.sync _|%p2, -1;\n"


def wait(barrier: int, label: str = "L") -> str:
    return (
        f"{label}: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r2+{barrier}], 0;\n"
        f"@!%p5 bra {label};\n"
    )


def arrive(barrier: int, guard: str = "") -> str:
    return f"{guard}mbarrier.arrive.shared::cta.b64 _, [%r2+{barrier}];\n"


def copy(number: int, guard: str = "", size: str = "4") -> str:
    return f"{guard}cp.async.ca.shared.global [%r4+{256 + 128 * number}], [%rd3], {size};\n"


def load(number: int, guard: str = "", at: str = "%r4") -> str:
    return f"{guard}ld.shared.u32 %r7, [{at}+{256 + 128 * number}];\n"


def store(number: int, guard: str = "") -> str:
    return f"{guard}st.shared.u32 [%r4+{256 + 128 * number}], %r3;\n"


COMMIT = "cp.async.commit_group;\n"
#: both warps meet, in lanes that may have parted
MEET = "barrier.sync 1, 64;\n"
TRACK = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2+8];\n"
LOW, HIGH, FEW = "@!%p6 ", "@%p6 ", "@%p4 "


def group(pending: int) -> str:
    return f"cp.async.wait_group {pending};\n"


def handed(own: str, other: str) -> str:
    """What the first warp does, and the second one behind it."""
    return f"{own}{MEET}{group(0)}ret;\nW: {MEET}{other}"


@dataclass(frozen=True)
class Row:
    """A right body and a wrong one, the rules of its findings, and lines of the first one."""

    right: str
    wrong: str
    rules: str = "race"
    lines: tuple[str, ...] = ()


def _moved(body: str, what: str, behind: str) -> str:
    """A body in which a line comes right behind another one."""
    assert body.count(what) == body.count(behind) == 1
    return body.replace(what, "").replace(behind, behind + what)


_THREE = copy(0) + COMMIT + copy(1) + COMMIT + copy(2) + COMMIT
_NEXT = copy(0) + COMMIT + group(0) + SYNC + load(0, at="%r5") + "ret;\nW: ret;"
_TWO = copy(0) + copy(1, LOW) + LOW + TRACK + copy(2, HIGH) + HIGH + TRACK + "ret;\n"
_TOLD = f"W: {wait(8)}{load(0)}{load(1, LOW)}{load(2, HIGH)}"
_AHEAD = copy(0) + COMMIT + f"@%p6 bra A;\n{copy(1)}{COMMIT}A: {group(1)}"
_RAISE = "red.release.cta.shared::cta.add.u32 [%r2+48], 1;\n"
_LOOK = "ld.acquire.cta.shared::cta.u32 %r8, [%r2+48];\n"
#: lane 3 of the second warp waits for the step of the first one, or for that of lane 0 as well
_RAISED = (
    f"@%p1 {_RAISE}ret;\nW: @!%p1 bra X;\nP: {_LOOK}setp.lt.u32 %p5, %r8, 1;\n@%p5 bra P;\n"
    f"{STORE}{_RAISE}X: @!%p3 bra Z;\nQ: {_LOOK}setp.lt.u32 %p5, %r8, {{enough}};\n@%p5 bra Q;\n"
    f"{LOAD}Z: ret;"
)
_HALF = f"{copy(1, LOW)}{TRACK}{copy(1, HIGH)}{COMMIT}{group(0)}ret;\nW: {wait(8)}"
_SIZED = copy(0, size="4, %r9") + COMMIT + group(0)
_DOWN = (
    "shfl.sync.down.b32 %r9, %r3, 1, 31, -1;\nsetp.eq.u32 %p2, %r9, 5;\nsetp.ne.u32 %p5, %r3, 4;\n"
    f"and.pred %p2, %p2, %p5;\n@%p2 bra W;\n{arrive(8)}{wait(8)}W: ret;"
)
#: the first twelve lanes copy, one in each turn
_OF_TURN = "cp.async.ca.shared.global [%r4+256], [%rd3], 4;\n"
_TWELVE = (
    f"mov.u32 %r9, 0;\nG: setp.eq.u32 %p2, %r3, %r9;\n@%p2 {_OF_TURN}add.u32 %r9, %r9, 1;\n"
    f"setp.lt.u32 %p5, %r9, 12;\n@%p5 bra G;\n{COMMIT}"
)
#: half of the lanes wait at one barrier, half at another one, for the other warp as well
_OWN = (
    "add.u32 %r8, %r2, 8;\nselp.b32 %r8, %r8, %r2, %p6;\n"
    "L: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r8], 0;\n@!%p5 bra L;\n"
)
_EACH = f"ret;\nW: {arrive(0, '@%p1 ')}{arrive(8, '@%p6 ')}"
_OF_NINE = f"setp.eq.u32 %p2, %r3, 9;\n@%p2 {STORE}"
#: lanes 8 to 15 wait for lane 31, which goes on without the first eight
_INNER = (
    f"@%p6 bra A;\n{{before}}@%p4 bra C;\n{wait(0, 'M')}C: {SYNC}{{behind}}A: {arrive(0, '@%p7 ')}"
    f"@!%p6 bra B;\n{SYNC}@%p7 {LOAD}B: mov.u32 %r9, 1;\nW: ret;"
)
FENCE = "fence.acq_rel.cta;\n"
RELAXED = "st.relaxed.cta.shared::cta.u32 [%r2+48], 1;\n"
_FLAGGED = f"ret;\nW: mov.u32 %r9, 0;\nP: {_LOOK}setp.lt.u32 %p5, %r8, 1;\n@%p5 bra P;\n{LOAD}ret;"
_LOOKED = (
    f"W: @!%p3 bra X;\nP: {_LOOK.replace('acquire', 'relaxed')}setp.lt.u32 %p5, %r8, 1;\n"
    f"@%p5 bra P;\nX: {{fences}}{FENCE}{{first}}{LOAD}ret;"
)
ROWS: dict[str, dict[str, Row]] = {
    "groups": {
        "none left": Row(
            handed(_THREE + group(0), load(2)), handed(_THREE + group(1), load(2)), "race",
            (load(2), copy(2)),
        ),
        "one left": Row(
            handed(_THREE + group(1), load(1)), handed(_THREE + group(2), load(1)), "race",
            (load(1), copy(1)),
        ),
        "two left": Row(
            handed(_THREE + group(2), load(0)), handed(_THREE + group(3), load(0)), "race",
            (load(0), copy(0)),
        ),
        "waited for by half": Row(
            handed(f"{copy(0)}{COMMIT}@%p6 bra A;\n{group(0)}A: mov.u32 %r9, 1;\n", load(0, LOW)),
            handed(f"{copy(0)}{COMMIT}@%p6 bra A;\n{group(0)}A: mov.u32 %r9, 1;\n", load(0, HIGH)),
            "race", (load(0, HIGH), copy(0)),
        ),
        "half are one ahead": Row(
            handed(_AHEAD, load(0, LOW)), handed(_AHEAD, load(0, HIGH)), "race",
            (load(0, HIGH), copy(0)),
        ),
        "the newest of half": Row(
            handed(_AHEAD.replace(group(1), group(0)), load(1, LOW)),
            handed(_AHEAD, load(1, LOW)), "race", (load(1, LOW), copy(1)),
        ),
        "a neighbour's": Row(
            _NEXT, _NEXT.replace(SYNC, ""), "race", (load(0, at="%r5"), copy(0))
        ),
        "not committed": Row(
            handed(copy(0) + COMMIT + group(0), load(0)),
            handed(copy(0) + group(0), load(0)).replace(f"{group(0)}ret", f"{COMMIT}{group(0)}ret"),
            "race", (load(0), copy(0)),
        ),
        "committed by half": Row(
            handed(f"{copy(0)}@%p6 bra A;\n{COMMIT}A: {group(0)}", load(0, LOW))
            .replace(f"{group(0)}ret", f"{COMMIT}{group(0)}ret"),
            handed(f"{copy(0)}@%p6 bra A;\n{COMMIT}A: {group(0)}", load(0, HIGH))
            .replace(f"{group(0)}ret", f"{COMMIT}{group(0)}ret"),
            "race", (load(0, HIGH), copy(0)),
        ),
    },
    "more sets of lanes than are told apart": {
        "one does not wait": Row(
            handed(_TWELVE + group(0), load(0, "@%p3 ")),
            handed(f"{_TWELVE}@!%p3 {group(0)}", load(0, "@%p3 ")), "race",
            (load(0), _OF_TURN),
        ),
        "the first one does not wait": Row(
            handed(_TWELVE + group(0), load(0, FEW)),
            handed(f"{_TWELVE}@!%p1 {group(0)}", load(0, FEW)), "race", (load(0), _OF_TURN),
        ),
        "another one waits": Row(
            handed(f"{_TWELVE}@%p3 {group(0)}", load(0, "@%p3 ")),
            handed(f"{_TWELVE}@%p1 {group(0)}", load(0, "@%p3 ")), "race", (load(0), _OF_TURN),
        ),
    },
    "barriers of lanes": {
        "some go on first": Row(
            f"{_OWN}@%p6 bra A;\n@%p1 {STORE}{arrive(8)}A: mov.u32 %r9, 1;\n@%p7 {LOAD}{_EACH}",
            f"{_OWN}@%p6 bra A;\n{arrive(8)}@%p1 {STORE}A: mov.u32 %r9, 1;\n@%p7 {LOAD}{_EACH}",
            "race", (LOAD, STORE),
        ),
        "some go on first, by guards": Row(
            f"{_OWN}@%p1 {STORE}{arrive(8, '@!%p6 ')}@%p7 {LOAD}{_EACH}",
            f"{_OWN}{arrive(8, '@!%p6 ')}@%p1 {STORE}@%p7 {LOAD}{_EACH}", "race", (LOAD, STORE),
        ),
        "in a branch": Row(
            f"@%p4 bra Z;\n{_OWN}@%p6 bra A;\n{_OF_NINE}{arrive(8)}{arrive(8)}"
            f"A: mov.u32 %r9, 1;\n@%p7 {LOAD}Z: mov.u32 %r9, 3;\n{_EACH}",
            f"@%p4 bra Z;\n{_OWN}@%p6 bra A;\n{arrive(8)}{arrive(8)}{_OF_NINE}"
            f"A: mov.u32 %r9, 1;\n@%p7 {LOAD}Z: mov.u32 %r9, 3;\n{_EACH}",
            "race", (LOAD, STORE),
        ),
        "for each other": Row(
            f"{_OWN}{arrive(8, '@!%p6 ')}{_EACH}", f"{_OWN}{arrive(8, HIGH)}{_EACH}", "deadlock",
        ),
    },
    "tracked": {
        "the last one": Row(
            f"{copy(0)}{copy(1)}{TRACK}ret;\nW: {wait(8)}{load(1)}",
            f"{copy(0)}{TRACK}{copy(1)}{COMMIT}{group(0)}ret;\nW: {wait(8)}{load(1)}",
            "race", (load(1), copy(1)),
        ),
        "of half": Row(
            _HALF + load(1, LOW), _HALF + load(1, HIGH),
            "race", (load(1, HIGH), copy(1, HIGH)),
        ),
        "by two instructions": Row(
            _TWO + _TOLD,
            _TWO.replace(copy(2, HIGH) + HIGH + TRACK, HIGH + TRACK + copy(2, HIGH))
            .replace("ret", f"{COMMIT}{group(0)}ret") + _TOLD,
            "race", (load(2, HIGH), copy(2, HIGH)),
        ),
        "the first of two": Row(
            _TWO + _TOLD,
            _TWO.replace(copy(1, LOW) + LOW + TRACK, LOW + TRACK + copy(1, LOW))
            .replace("ret", f"{COMMIT}{group(0)}ret") + _TOLD,
            "race", (load(1, LOW), copy(1, LOW)),
        ),
        "the common one": Row(
            _TWO + _TOLD,
            _moved(_TWO, copy(0), copy(2, HIGH) + HIGH + TRACK)
            .replace("ret", f"{COMMIT}{group(0)}ret") + _TOLD,
            "race", (load(0), copy(0)),
        ),
        "one arrival fewer": Row(
            _TWO + _TOLD, _TWO.replace(HIGH + TRACK, "") + _TOLD, "deadlock",
        ),
    },
    "sizes": {
        "nothing": Row(
            handed(_SIZED,
                   f"{load(0)}setp.ne.u32 %p2, %r7, 0;\n@%p2 bra Z;\nret;\nZ: {wait(0)}"),
            handed(_SIZED,
                   f"{load(0)}setp.eq.u32 %p2, %r7, 0;\n@%p2 bra Z;\nret;\nZ: {wait(0)}"),
            "deadlock",
        ),
        "too much": Row(
            handed(_SIZED, load(0)),
            handed("mov.u32 %r9, 5;\n" + _SIZED, load(0)),
            "out-of-bounds", (copy(0, size="4, %r9"),),
        ),
        "too much in one": Row(
            handed("selp.u32 %r9, 4, 0, %p3;\n" + _SIZED, load(0)),
            handed("selp.u32 %r9, 5, 0, %p3;\n" + _SIZED, load(0)),
            "out-of-bounds", (copy(0, size="4, %r9"),),
        ),
    },
    "meetings": {
        "at two places": Row(
            f"@%p6 bra A;\n@%p1 {STORE}{SYNC}A: @!%p6 bra B;\n{SYNC}B: @%p7 {LOAD}W: ret;",
            f"@%p6 bra A;\n{SYNC}@%p1 {STORE}A: @!%p6 bra B;\n{SYNC}B: @%p7 {LOAD}W: ret;",
            "race", (LOAD, STORE),
        ),
        "of half": Row(
            f"@%p1 {STORE}@%p6 bra A;\nbar.warp.sync 0xffff;\n@%p3 {LOAD}A: mov.u32 %r9, 1;\n"
            "W: ret;",
            f"@%p1 {STORE}@%p6 bra A;\nbar.warp.sync 0xffff;\nA: @%p7 {LOAD}W: ret;",
            "race", (LOAD, STORE),
        ),
        "one waits for another's arrival": Row(
            f"@%p6 bra A;\n@%p1 bra C;\nbra.uni D;\nC: {wait(0)}{LOAD}D: @%p3 {STORE}"
            f"{arrive(0, '@%p3 ')}A: mov.u32 %r9, 1;\nW: ret;",
            f"@%p6 bra A;\n@%p1 bra C;\nbra.uni D;\nC: {wait(0)}{LOAD}D: {arrive(0, '@%p3 ')}"
            f"@%p3 {STORE}A: mov.u32 %r9, 1;\nW: ret;",
            "race", (LOAD, STORE),
        ),
        "two that wait for each other": Row(
            f"@%p6 bra A;\n@%p1 bra C;\nbra.uni D;\nC: {wait(0)}D: {arrive(0, '@%p3 ')}{SYNC}"
            f"A: mov.u32 %r9, 1;\nW: ret;".replace(SYNC, "bar.warp.sync 0xffff;\n"),
            f"@%p6 bra A;\n@%p1 bra C;\nbra.uni D;\nC: {wait(0)}D: {SYNC}{arrive(0, '@%p3 ')}"
            f"A: mov.u32 %r9, 1;\nW: ret;".replace(SYNC, "bar.warp.sync 0xffff;\n"),
            "deadlock", (wait(0).splitlines()[0],),
        ),
        "behind two branches": Row(
            f"@%p6 bra A;\n@%p4 bra C;\n@%p7 bra C;\n{wait(0, 'M')}C: mov.u32 %r9, 1;\n"
            f"A: {arrive(0, '@%p7 ')}W: ret;",
            f"@%p6 bra A;\n@%p4 bra C;\n@%p7 bra C;\n{wait(0, 'M')}C: mov.u32 %r9, 1;\n"
            f"A: {SYNC}{arrive(0, '@%p7 ')}W: ret;",
            "deadlock",
        ),
        "a word that another lane has raised again": Row(
            _RAISED.format(enough=2), _RAISED.format(enough=1), "race", (LOAD, STORE)
        ),
        "a meeting at the end of a branch": Row(
            f"@%p6 bra A;\n@%p1 {STORE}{SYNC}A: @!%p6 bra B;\n{SYNC}B: @%p7 {LOAD}W: ret;",
            f"@%p6 bra A;\n@%p1 {STORE}{SYNC}A: @%p3 {STORE}@!%p6 bra B;\n{SYNC}B: @%p7 {LOAD}"
            "W: ret;",
            "race", (LOAD, STORE),
        ),
        "a meeting behind an inner branch": Row(
            _INNER.format(before=f"@%p1 {STORE}", behind=""),
            _INNER.format(before="", behind=f"@%p1 {STORE}"),
            "race", (LOAD, STORE),
        ),
        "arrivals of eight more": Row(
            f"{arrive(16)}{store(0, FEW)}{arrive(16, FEW)}ret;\nW: {wait(16)}{load(0, FEW)}",
            f"{arrive(16)}{arrive(16, FEW)}{store(0, FEW)}ret;\nW: {wait(16)}{load(0, FEW)}",
            "race", (load(0, FEW), store(0, FEW)),
        ),
        "arrivals of others": Row(
            f"{store(0, HIGH)}{arrive(16)}{arrive(16, FEW)}ret;\nW: {wait(16)}{load(0, HIGH)}",
            f"{arrive(16)}{store(0, HIGH)}{arrive(16, FEW)}ret;\nW: {wait(16)}{load(0, HIGH)}",
            "race", (load(0, HIGH), store(0, HIGH)),
        ),
    },
    "fences": {
        "before a branch": Row(
            f"@%p1 {STORE}{FENCE}@!%p1 bra A;\n{RELAXED}A: mov.u32 %r9, 1;\n{_FLAGGED}",
            f"{FENCE}@!%p1 bra A;\n{STORE}{RELAXED}A: mov.u32 %r9, 1;\n{_FLAGGED}",
            "race", (LOAD, STORE),
        ),
        "before guards": Row(
            f"@%p1 {STORE}{FENCE}@%p1 {RELAXED}{_FLAGGED}",
            f"{FENCE}@%p1 {STORE}@%p1 {RELAXED}{_FLAGGED}", "race", (LOAD, STORE),
        ),
        "between two branches": Row(
            f"{FENCE}@%p6 bra A;\n@!%p1 bra C;\n{STORE}{FENCE}{RELAXED}C: mov.u32 %r9, 2;\n"
            f"A: mov.u32 %r9, 1;\n{_FLAGGED}",
            f"{FENCE}@%p6 bra A;\n{FENCE}@!%p1 bra C;\n{STORE}{RELAXED}C: mov.u32 %r9, 2;\n"
            f"A: mov.u32 %r9, 1;\n{_FLAGGED}",
            "race", (LOAD, STORE),
        ),
        "of other lanes": Row(
            f"@%p1 {STORE}@%p1 {FENCE}@%p1 {RELAXED}{_FLAGGED}",
            f"@%p1 {STORE}@%p3 {FENCE}@%p1 {RELAXED}{_FLAGGED}", "race", (LOAD, STORE),
        ),
        "of who has looked": Row(
            f"@%p1 {STORE}@%p1 {_RAISE}ret;\n{_LOOKED.format(first='@%p3 ', fences='')}",
            f"@%p1 {STORE}@%p1 {_RAISE}ret;\n{_LOOKED.format(first='@%p3 ', fences='@%p1 ')}",
            "race", (LOAD, STORE),
        ),
    },
    "collectives": {
        "a lane that is not there": Row(
            "mov.u32 %r8, %r3;\n@%p6 bra A;\nshfl.sync.idx.b32 %r9, %r8, 10, 31, 0xffff;\n"
            "A: mov.u32 %r7, 1;\nW: ret;",
            "mov.u32 %r8, %r3;\n@%p6 bra A;\nshfl.sync.idx.b32 %r9, %r8, 20, 31, 0xffff;\n"
            "A: mov.u32 %r7, 1;\nW: ret;",
            "participation",
        ),
        "what is not known of a lane that is not there": Row(
            "ld.global.u32 %r8, [%rd3];\n@%p6 bra A;\nshfl.sync.idx.b32 %r9, %r8, 10, 31, 0xffff;\n"
            "A: mov.u32 %r7, 1;\nW: ret;",
            "ld.global.u32 %r8, [%rd3];\n@%p6 bra A;\nshfl.sync.idx.b32 %r9, %r8, 20, 31, 0xffff;\n"
            "A: mov.u32 %r7, 1;\nW: ret;",
            "participation",
        ),
        "a lane that has exited": Row(
            "mov.u32 %r8, %r3;\n@%p6 bra W;\nshfl.sync.idx.b32 %r9, %r8, 10, 31, -1;\nW: ret;",
            "mov.u32 %r8, %r3;\n@%p6 bra W;\nshfl.sync.idx.b32 %r9, %r8, 20, 31, -1;\nW: ret;",
            "participation",
        ),
        "what is not known of a lane that has exited": Row(
            "ld.global.u32 %r8, [%rd3];\n@%p6 bra W;\nshfl.sync.idx.b32 %r9, %r8, 10, 31, -1;\n"
            "W: ret;",
            "ld.global.u32 %r8, [%rd3];\n@%p6 bra W;\nshfl.sync.idx.b32 %r9, %r8, 20, 31, -1;\n"
            "W: ret;",
            "participation",
        ),
        "the next lane's number": Row(
            _DOWN, _DOWN.replace("setp.ne", "setp.eq"), "deadlock",
        ),
        "votes of all": Row(
            f"@%p6 bra A;\nvote.sync.any.pred %p2, %p1, 0xffff;\nA: {SYNC}W: ret;",
            f"@%p6 bra A;\nvote.sync.any.pred %p2, %p1, -1;\nA: {SYNC}W: ret;",
            "participation",
        ),
        "votes at two places": Row(
            f"@%p6 bra A;\nvote.sync.any.pred %p2, %p1, 0xffff;\nbra.uni B;\n"
            f"A: vote.sync.all.pred %p2, %p1, 0xffff0000;\nB: {SYNC}W: ret;",
            f"@%p6 bra A;\nvote.sync.any.pred %p2, %p1, -1;\nbra.uni B;\n"
            f"A: vote.sync.all.pred %p2, %p1, -1;\nB: {SYNC}W: ret;",
            "participation",
        ),
    },
}  # fmt: skip


def check(body: str, strict: Literal["practice", "ptx"]) -> Report:
    made = program(
        START + body, warps=2, params=(".param .u64 x",), values=(Pointer("x", 1 << 12),)
    )
    return checker.check(made, strict=strict, budget=200, schedules=4)


def named(found: Report, body: str) -> set[str]:
    """The lines of the first finding, without guards and labels."""
    text = (START + body).splitlines()
    return {_plain(text[p.loc.line - FIRST]) for p in found.findings[0].participants}


def _plain(line: str) -> str:
    line = line.strip().split(": ")[-1]
    return line.split(" ", 1)[1] if line.startswith("@") else line


@pytest.mark.parametrize(
    ("family", "name"), [(family, name) for family, rows in ROWS.items() for name in rows]
)
def test_lanes_that_go_their_own_ways(family: str, name: str) -> None:
    """Right by the text, wrong in practice, where less is forbidden."""
    row = ROWS[family][name]
    assert check(row.right, "ptx").verdict == "proved"
    wrong = check(row.wrong, "practice")
    assert wrong.rules == set(row.rules.split())
    if row.lines:
        assert named(wrong, row.wrong) == set(map(_plain, row.lines))


def _again(what: str, label: str, guard: str = "@!%p1 ") -> str:
    """In lanes of which ``guard`` does not hold, twice."""
    return (
        f"{guard}bra {label};\nmov.u32 %r9, 0;\nG{label}: {what}add.u32 %r9, %r9, 1;\n"
        f"setp.lt.u32 %p5, %r9, 2;\n@%p5 bra G{label};\n{label}: mov.u32 %r9, 2;\n"
    )


#: wrong if another lane than the first one is elected: what stands before, and between both halves
#: of it that meeting lanes makes right
ELECTED: dict[str, tuple[str, str]] = {
    "a guarded store": (f"@%p1 {STORE}", f"{ELECT}@%p2 {LOAD}"),
    "a store in a branch": (f"@!%p1 bra A;\n{STORE}A: mov.u32 %r9, 2;\n", f"{ELECT}@%p2 {LOAD}"),
    "a load in a branch": (f"{ELECT}@%p2 {STORE}", f"@!%p1 bra A;\n{LOAD}A: mov.u32 %r9, 2;\n"),
    "a load of who was elected": (f"{ELECT}@%p2 {STORE}", f"@%p1 {LOAD}"),
    "a word of each lane": (store(0), f"{ELECT}@%p2 ld.shared.u32 %r7, [%r2+256];\n"),
    "a word of each lane, stored behind": (
        f"{ELECT}@%p2 st.shared.u32 [%r2+256], 1;\n", store(0)
    ),
    "a store in a region": (
        f"{ELECT}@!%p2 bra A;\n{STORE}A: mov.u32 %r9, 2;\n",
        f"@!%p1 bra B;\n{LOAD}B: mov.u32 %r9, 3;\n",
    ),
    "stores in a loop": (_again(STORE, "A"), f"{ELECT}@%p2 {LOAD}"),
    "loads in a loop": (f"{ELECT}@%p2 {STORE}", _again(LOAD, "A")),
    "an elected loop": (f"{ELECT}{_again(STORE, 'A', '@!%p2 ')}", f"@%p1 {LOAD}"),
    "two loops": (_again(STORE, "A"), f"{ELECT}{_again(LOAD, 'B', '@!%p2 ')}"),
    "two stores": (f"@%p1 {STORE}", f"{ELECT}@%p2 {STORE}"),
    "a chosen branch": (
        f"{ELECT}@%p2 bra A;\nbra.uni B;\nA: {STORE}B: mov.u32 %r9, 2;\n", f"@%p1 {LOAD}"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ELECTED)
def test_any_lane_may_be_elected(name: str) -> None:
    before, behind = ELECTED[name]
    right, wrong = f"{before}{SYNC}{behind}W: ret;", f"{before}{behind}W: ret;"
    assert check(right, "practice").verdict == check(right, "ptx").verdict == "proved"
    assert check(wrong, "practice").verdict == "proved"
    assert check(wrong, "ptx").rules == {"race"}


def _with(body: str, right: str, wrong: str = "") -> tuple[str, str]:
    """A body with one of these at ``@@``."""
    end = "" if "W: " in body else "W: ret;"
    return body.replace("@@", right) + end, body.replace("@@", wrong) + end


def _copied(own: str, right: str, wrong: str) -> tuple[str, str]:
    """Lane 31 of the second warp reads what a copy of that lane of the first one leaves."""
    both = (handed(own.replace("@@", lane), load(0, LAST)) for lane in (right, wrong))
    right, wrong = (body.replace(f"{group(0)}ret", f"{COMMIT}{group(0)}ret") for body in both)
    return right, wrong


LAST, CHOSEN = "@%p7 ", "@%p2 "
_LAST_STORES, _HANG = f"{LAST}{STORE}", f"@%p5 bra E;\n{wait(0)}E: ret;\n"
_UPPER = f"@!%p6 bra A;\nelect.sync _|%p2, 0xffff0000;\n{CHOSEN}"
_TURN = f"{_LAST_STORES}add.u32 %r9, %r9, 1;\nsetp.lt.u32 %p5, %r9, 2;\n@%p5 bra G;\n"
_GENERIC = "cvt.u64.u32 %rd4, %r2;\ncvta.shared.u64 %rd4, %rd4;\n"
_FREE = "mov.u64 %rd4, %rd3;\n"
#: no other word than that of lane 0 (right) or 31 (wrong) is stored by the second warp
_OTHER = "ret;\nW: @%p1 st.global.u32 [%rd1+@@], 1;\nret;\n"
_MASKS = "selp.b32 %r8, 0x80000000, 0x7fffffff, %p7;\nbar.warp.sync %r8;\n"
_LOOKS = (
    f"@!{{lane}} bra A;\nP: {_LOOK.replace('acquire', 'relaxed')}setp.lt.u32 %p5, %r8, 1;\n"
    "@%p5 bra P;\nA: mov.u32 %r9, 1;\n"
)
_RAISES = f"ret;\nW: @%p1 {STORE}@%p1 {_RAISE}ret;\n"
_COPY, _TRACK_ONE = copy(0) + COMMIT, TRACK.replace("+8", "")
#: wrong unless the last lane is elected, as it is in all runs but one: of each the right one, too
LAST_ONLY: dict[str, tuple[str, str, str]] = {
    **{
        name: (
            f"{before}{SYNC}{behind}W: ret;".replace("%p1 ", "%p7 "),
            f"{before}{behind}W: ret;".replace("%p1 ", "%p7 "),
            "race",
        )
        for name, (before, behind) in ELECTED.items()
    },
    "arrivals in between": (*_with(
        f"{_LAST_STORES}{arrive(8)}@@{ELECT}{CHOSEN}{LOAD}", SYNC), "race"),
    "a fence in between": (*_with(
        f"{_LAST_STORES}fence.acq_rel.cta;\n@@{ELECT}{CHOSEN}{LOAD}", SYNC), "race"),
    "a barrier in between": (*_with(
        f"{_LAST_STORES}@@{ELECT}{CHOSEN}{LOAD}ret;\nW: barrier.sync 2, 64;\nret;\n",
        "barrier.sync 2, 64;\n", "barrier.arrive 2, 64;\n"), "race"),
    "others meet": (*_with(
        f"{_LAST_STORES}{LAST}bra A;\nbar.warp.sync 0x7fffffff;\n"
        f"A: @@{ELECT}{CHOSEN}{LOAD}", SYNC, "mov.u32 %r9, 1;\n"), "race"),
    "in the turn before": (*_with(
        f"mov.u32 %r9, 0;\n@%p1 {STORE}{SYNC}G: @@{ELECT}{CHOSEN}{LOAD}{SYNC}{_TURN}",
        SYNC, "mov.u32 %r8, 1;\n"), "race"),
    "a word of its own": (*_with(
        f"{ELECT}{CHOSEN}ld.global.u32 %r7, [%rd3];\n{_OTHER}", "256", "0"), "race"),
    "words of all others": (*_with(
        f"{_FREE}{ELECT}{CHOSEN}add.u64 %rd4, %rd1, 256;\nld.global.u32 %r7, [%rd4];\n{_OTHER}",
        "512", "124"), "race"),
    "words of all others, chosen": (*_with(
        f"{ELECT}add.u64 %rd4, %rd1, 256;\nselp.b64 %rd4, %rd4, %rd3, %p2;\n"
        f"ld.global.u32 %r7, [%rd4];\n{_OTHER}", "512", "124"), "race"),
    "words of all others, guarded": (*_with(
        f"{ELECT}@!%p2 ld.global.u32 %r7, [%rd3];\n{_OTHER}", "512", "124"), "race"),
    "words of all others, in a branch": (*_with(
        f"{ELECT}{CHOSEN}bra A;\nld.global.u32 %r7, [%rd3];\nA: mov.u32 %r9, 2;\n{_OTHER}",
        "512", "124"), "race"),
    "lanes meet by masks of their own": (*_with(
        f"{_LAST_STORES}@@{ELECT}{CHOSEN}{LOAD}", SYNC, _MASKS), "race"),
    "a vote of it": (*_with(
        f"{ELECT}vote.sync.ballot.b32 %r7, %p2, -1;\nsetp.@@.u32 %p5, %r7, 0x80000000;\n{_HANG}",
        "le", "eq"), "deadlock"),
    "a barrier's vote of it": (*_with(
        f"{ELECT}and.pred %p5, %p2, %p7;\nbarrier.cta.red.or.pred %p5, 3, 32, %p5;\n@@{_HANG}",
        "setp.eq.u32 %p5, %r9, %r9;\n"), "deadlock"),
    "so many turns": (*_with(
        f"mov.u32 %r7, 1;\n{ELECT}{CHOSEN}mov.u32 %r7, %r3;\nmov.u32 %r9, 0;\n"
        "G: add.u32 %r9, %r9, 1;\nsetp.lt.u32 %p5, %r9, %r7;\n@%p5 bra G;\n"
        "redux.sync.add.u32 %r9, %r9, -1;\n"
        f"setp.@@.u32 %p5, %r9, 62;\n{_HANG}", "le", "eq"), "deadlock"),
    "it looks, and the last lane fences": (*_with(
        f"{ELECT}{_LOOKS.format(lane='%p2')}{SYNC}@@{SYNC}{LAST}{LOAD}{_RAISES}",
        f"{CHOSEN}{FENCE}", f"{LAST}{FENCE}"), "race"),
    "the last lane looks, and it fences": (*_with(
        f"{ELECT}{_LOOKS.format(lane='%p7')}{SYNC}@@{SYNC}{LAST}{LOAD}{_RAISES}",
        f"{LAST}{FENCE}", f"{CHOSEN}{FENCE}"), "race"),
    "it stores, and the last lane tells": (*_with(
        f"{ELECT}{CHOSEN}{STORE}{SYNC}@@{LAST}{RELAXED}{_FLAGGED}",
        f"{FENCE}", f"{CHOSEN}{FENCE}"), "race"),
    "it stores and arrives": (*_with(
        f"{ELECT}{CHOSEN}{STORE}{arrive(0, CHOSEN)}@@{LAST}{LOAD}", SYNC), "race"),
    "its number, stored": (*_with(
        f"{ELECT}{CHOSEN}st.shared.u32 [%r2+64], %r3;\n{SYNC}{LOAD}setp.@@.u32 %p5, %r7, 31;\n"
        f"{_HANG}", "le", "eq"), "deadlock"),
    "its number, in a register": (*_with(
        f"mov.u32 %r7, 0;\n{ELECT}{CHOSEN}mov.u32 %r7, %r3;\nredux.sync.add.u32 %r7, %r7, -1;\n"
        f"setp.@@.u32 %p5, %r7, 31;\n{_HANG}", "le", "eq"), "deadlock"),
    "its number, shuffled": (*_with(
        f"mov.u32 %r7, 0;\n{ELECT}{CHOSEN}mov.u32 %r7, 1;\n"
        "shfl.sync.idx.b32 %r8, %r7, 31, 31, -1;\n"
        f"setp.@@.u32 %p5, %r8, 1;\n{_HANG}", "le", "eq"), "deadlock"),
    "of half, and of all": (*_with(
        f"{_UPPER}{STORE}A: @@{ELECT}{CHOSEN}{LOAD}", SYNC, "mov.u32 %r9, 1;\n"), "race"),
    "of all, and of half": (*_with(
        f"{ELECT}{CHOSEN}{STORE}@@{_UPPER}{LOAD}A: mov.u32 %r9, 1;\n", SYNC), "race"),
    "a generic store": (*_with(
        f"{_GENERIC}{ELECT}{CHOSEN}st.u32 [%rd4+64], 1;\n@@{LAST}{LOAD}", SYNC), "race"),
    "a generic load behind": (*_with(
        f"{_GENERIC}{ELECT}{CHOSEN}{STORE}@@{LAST}ld.u32 %r7, [%rd4+64];\n", SYNC), "race"),
    "a global store": (*_with(
        f"{ELECT}{CHOSEN}st.global.u32 [%rd1+64], 1;\n@@{LAST}ld.global.u32 %r7, [%rd1+64];\n",
        SYNC), "race"),
    "commits a copy": (*_copied(
        f"{LAST}{copy(0)}{SYNC}{ELECT}@@{COMMIT}{group(0)}mov.u32 %r9, 1;\n",
        LAST, CHOSEN), "race"),
    "waits for a copy": (*_copied(
        f"{LAST}{copy(0)}{LAST}{COMMIT}{SYNC}{ELECT}@@{group(0)}", LAST, CHOSEN), "race"),
    "waits for copies of all": (*_copied(
        f"{_COPY}{SYNC}{ELECT}@@{group(0)}", LAST, CHOSEN), "race"),
    "commits copies of all": (*_copied(
        f"{copy(0)}{SYNC}{ELECT}@@{COMMIT}{group(0)}", LAST, CHOSEN), "race"),
    "tracks a copy": (*_with(
        f"{LAST}{copy(0)}{SYNC}{ELECT}@@{_TRACK_ONE}{COMMIT}{group(0)}ret;\n"
        f"W: {wait(0)}{load(0, LAST)}",
        LAST, CHOSEN), "race"),
    "tracks copies of all": (*_with(
        f"{copy(0)}{SYNC}{ELECT}@@{COMMIT}{group(0)}ret;\nW: {wait(0)}{load(0, LAST)}",
        f"{COMMIT}{group(0)}{arrive(0, LAST)}", f"{CHOSEN}{_TRACK_ONE}"), "race"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAST_ONLY)
def test_not_only_the_last_lane_may_be_elected(name: str) -> None:
    """It is in each run but the one that looks at the first lane, where that may matter."""
    right, wrong, rule = LAST_ONLY[name]
    assert check(right, "ptx").verdict in ("proved", "bounded")
    assert check(wrong, "ptx").rules == {rule}


#: a lane's fence acts for what that lane has looked at or tells: right, and wrong at `ptx` only
FENCED = {
    "of a lane that has looked": _with(
        f"{_LOOKS.format(lane='%p3')}{SYNC}@@{SYNC}@%p1 {LOAD}{_RAISES}",
        f"@%p3 {FENCE}", f"@%p1 {FENCE}",
    ),
    "of a lane that tells": _with(
        f"@%p1 {STORE}{SYNC}@@@%p3 {RELAXED}{_FLAGGED}", FENCE, f"@%p1 {FENCE}{SYNC}"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FENCED)
def test_a_fence_of_another_lane(name: str) -> None:
    right, wrong = FENCED[name]
    assert check(right, "practice").verdict == check(right, "ptx").verdict == "proved"
    assert check(wrong, "practice").verdict == "proved"
    found = check(wrong, "ptx")
    assert found.rules == {"race"}
    assert named(found, wrong) == {_plain(STORE), _plain(LOAD)}


#: what all lanes of a mask wait for each other to execute
TOGETHER = (
    "vote.sync.any.pred %p2, %p1, @@;", "shfl.sync.idx.b32 %r9, %r3, 0, 31, @@;",
    "bar.warp.sync @@;", "match.any.sync.b32 %r9, %r3, @@;", "redux.sync.add.u32 %r9, %r3, @@;",
)  # fmt: skip
_ONE = f"""\
mov.u32 %r1, %tid.x; mov.u32 %r2, smem; and.b32 %r3, %r1, 31; setp.ge.u32 %p6, %r3, 16;
setp.eq.u32 %p1, %r3, 0; setp.ge.u32 %p8, %r1, 32; setp.ne.u32 %p0, %r1, 0; mov.u32 %r6, 1;
shl.b32 %r4, %r3, 2; add.u32 %r4, %r4, %r2;
{SYNC}@%p0 bra I;
mbarrier.init.shared::cta.b64 [%r2], %r6;
I: bar.sync 0; @%p8 bra W;
{SYNC}@%p6 bra A;
@@
A: {SYNC}{ELECT}@!%p2 bra D;
{arrive(0)}D: {SYNC}ret;
W: {wait(0)}@%p1 {STORE}ret;"""


@pytest.mark.parametrize("together", TOGETHER)
def test_lanes_that_all_meet_again_before_the_others_could_come(together: str) -> None:
    """Only the second warp's lanes part; those of the first one act as one but in a branch."""
    for mask, rules in (("0xffff", set()), ("-1", {"participation"})):
        text = _ONE.replace("@@", together.replace("@@", mask))
        report = checker.check(program(text, warps=2), budget=200, schedules=4)
        assert report.rules == rules
        assert report.verdict == ("failed" if rules else "proved")


def test_lanes_that_have_not_met_before_a_branch_in_another_block() -> None:
    """One of them is elected between the start of the block and the branch, and arrives there."""
    start, _ = _ONE.split(f"{SYNC}@%p6 bra A;")
    for sync, rules in ((SYNC, set()), ("", {"race"})):
        text = (
            f"{start}{store(0)}{sync}mov.u32 %r10, %ctaid.x;\nsetp.eq.u32 %p5, %r10, 1;\n"
            f"@%p5 bra E;\n{ELECT}@!%p2 bra D;\n{arrive(0)}D: {SYNC}E: ret;\n"
            f"W: {wait(0)}{load(0)}ret;"
        )
        report = checker.check(program(text, warps=2), budget=200, schedules=4)
        assert report.rules == rules
        assert report.verdict == ("failed" if rules else "proved")


#: without the wait the two lines race
_REST = """\
st.shared.u32 [%r10], 1;
bar.sync 0;
ld.shared.u32 %r7, [%r11];
bar.sync 0;
st.shared.u32 [%r10], 2;
bar.sync 0;
ld.shared.u32 %r7, [%r11];
st.global.u32 [%rd6], %r7;
E: ret;
"""
_WORD = "ld.global.u32 %r8, [%rd4];\nsetp.eq.u32 %p2, %r8, 0;\n@%p2 bra E;\n"
#: by which all threads of a CTA end or none; and by which each may end for itself
AGREED = {
    "a word of the CTA": _WORD,
    "and a parameter": _WORD.replace("setp", "add.u32 %r8, %r8, %r12;\nsetp"),
    "chosen": _WORD.replace("setp.eq", "selp.u32 %r8, %r8, 5, %p5;\nsetp.eq"),
    "two words": _WORD + _WORD.replace("[%rd4]", "[%rd1+64]"),
    "any thread": (
        "ld.global.u32 %r8, [%rd5];\nsetp.gt.u32 %p3, %r8, 3;\n"
        "barrier.cta.red.or.pred %p2, 0, %p3;\n@%p2 bra E;\n"
    ),
}  # fmt: skip
ALONE = {
    "a word of the thread": _WORD.replace("%rd4", "%rd5"),
    "volatile": _WORD.replace("ld.global", "ld.volatile.global"),
    "a number of the thread": _WORD.replace("%r8, 0", "%r8, %r3"),
    "loaded by some": _WORD.replace("ld.global", "mov.u32 %r8, 1;\n@%p8 ld.global"),
    "asked by some": _WORD.replace("@%p2", "and.pred %p2, %p2, %p8;\n@%p2"),
    "in a branch of some": f"@%p8 bra G;\n{_WORD}G: mov.u32 %r9, 2;\n",
    "a vote of a warp": _WORD.replace("%rd4", "%rd5").replace(
        "@%p2", "vote.sync.any.pred %p2, %p2, -1;\n@%p2"
    ),
    "written": _WORD.replace("[%rd4]", "[%rd6]"),
    "drawn": _WORD.replace("ld.global.u32 %r8, [%rd4]", "atom.global.add.u32 %r8, [%rd4], 1"),
}  # fmt: skip


def ends(decides: str) -> Report:
    start = START.replace("setp.ge.u32 %p8, %r1, 32; @%p8 bra W;", (
        "setp.ge.u32 %p8, %r1, 32; shl.b32 %r10, %r1, 2; add.u32 %r10, %r10, %r2; "
        "add.u32 %r10, %r10, 256; xor.b32 %r11, %r10, 132; mov.u32 %r13, %ctaid.x; "
        "setp.eq.u32 %p5, %r13, 0;\nmul.wide.u32 %rd4, %r13, 4; add.u64 %rd4, %rd1, %rd4; "
        "mad.lo.u32 %r14, %r13, 64, %r1; mul.wide.u32 %rd5, %r14, 4; ld.param.u64 %rd6, [z]; "
        "add.u64 %rd6, %rd6, %rd5; add.u64 %rd5, %rd1, %rd5; ld.param.u32 %r12, [n];"
    ))  # fmt: skip
    made = program(
        (start + decides).strip(), warps=2, grid=2,
        params=(".param .u64 x", ".param .u64 z", ".param .u32 n"),
        values=(Pointer("x", 1 << 12), Pointer("z", 1 << 12), Scalar("n", "u32", 7)),
    )  # fmt: skip
    return checker.check(made, budget=200, schedules=4)


@pytest.mark.parametrize("name", AGREED)
def test_a_cta_that_may_end(name: str) -> None:
    assert ends(AGREED[name] + _REST).verdict == "proved"
    assert ends(AGREED[name] + _REST.replace("bar.sync 0;\n", "", 1)).rules == {"race"}


@pytest.mark.parametrize("name", ALONE)
def test_threads_that_may_end(name: str) -> None:
    assert ends(ALONE[name] + _REST).verdict == "bounded"
