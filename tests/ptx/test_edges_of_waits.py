"""Loops of polls, at each edge of what passes over PTX take for a wait: right, and wrong twins.

The first warp stores a number and hands it over; the second one waits for it in a loop of some
form, and reads it. Wrong ones store too late, which the read tells, do not hand it over, which the
wait tells, or do something in the loop that is no wait. What a form takes for a wait and is none,
or what it leaves out and is needed, is another verdict of one of these.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.ptx.test_check import FIRST, program
from tilesim import checker
from tilesim.checker.report import Report

#: %p0: thread 0; %p6: the first lane of the second warp; [%r1] and [%r1+8] are mbarriers, [%r1+16]
#: and what follows are words
AROUND = """\
mov.u32 %r1, smem; mov.u32 %r2, 1; mov.u32 %r4, %tid.x; setp.eq.u32 %p0, %r4, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r1], %r2; @%p0 mbarrier.init.shared::cta.b64 [%r1+8], %r2;
@%p0 st.shared.u32 [%r1+16], 0; @%p0 st.shared.u32 [%r1+20], 1; @%p0 st.shared.u32 [%r1+24], 0;
@%p0 st.shared.u32 [%r1+96], 0;
bar.sync 0;
setp.ge.u32 %p8, %r4, 32; setp.eq.u32 %p6, %r4, 32; mov.u32 %r9, 0; mov.u32 %r10, 0; @%p8 bra W;
{first}
ret;
W: mov.u32 %r11, 5;
{second}
"""
STORE = "@%p0 st.shared.u32 [%r1+64], 7;\n"
ARRIVE = "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];\n"
RAISE = "@%p0 st.release.cta.shared::cta.u32 [%r1+16], 1;\n"
READ = "ld.shared.u32 %r7, [%r1+64];\n"
POLL = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n"
#: takes its time
OTHERS = "ld.shared.u32 %r20, [%r1+96];\n" * 30
LOOK = "ld.acquire.cta.shared::cta.u32 %r8, [%r1+16];\n"


def check(first: str, second: str) -> Report:
    text = AROUND.format(first=first.strip(), second=second.strip())
    return checker.check(program(text, warps=2), budget=100, schedules=4)


def named(found: Report, first: str, second: str) -> list[str]:
    """The lines of the first finding."""
    text = AROUND.format(first=first.strip(), second=second.strip()).splitlines()
    return [text[p.loc.line - FIRST].split(": ")[-1] for p in found.findings[0].participants]


@dataclass(frozen=True)
class Form:
    """A loop with the read behind it, what ``hands`` over, and what is said of the right one."""

    text: str
    hands: str = ARRIVE
    verdict: str = "proved"


def _if(cond: str) -> str:
    """Reads only if a condition holds of what a loop has left in registers."""
    return f"setp.{cond};\n@%p4 bra B;\nret;\nB: {READ}"


#: right if it is handed over, a race if it is stored late, and a deadlock if nothing is handed over
FORMS: dict[str, Form] = {
    "a loop": Form(f"L: {POLL}@!%p1 bra L;\n{READ}"),
    "its way out": Form(f"L: {POLL}@%p1 bra D;\nbra L;\nD: {READ}"),
    "an answer in a register": Form(
        f"L: {POLL}selp.u32 %r8, 1, 0, %p1;\nsetp.eq.u32 %p2, %r8, 0;\n@%p2 bra L;\n{READ}"
    ),
    "an answer that is used behind": Form(
        f"L: {POLL}selp.u32 %r8, 5, 6, %p1;\n@!%p1 bra L;\n{_if('eq.u32 %p4, %r8, 5')}"
    ),
    "a negated answer": Form(f"L: {POLL}not.pred %p2, %p1;\n@%p2 bra L;\n{READ}"),
    "a poll before": Form(f"{POLL}@%p1 bra D;\nL: {POLL}@!%p1 bra L;\nD: {READ}"),
    "a poll before, and a number set": Form(
        f"{POLL}@%p1 bra D;\nL: {POLL.replace('%p1', '%p2')}@!%p2 bra L;\nmov.u32 %r9, 0;\n"
        f"D: {_if('eq.u32 %p4, %r9, 0')}",
        verdict="bounded",
    ),
    "a poll before, and a parity that is set behind it": Form(
        f"{POLL}@%p1 bra D;\nand.b32 %r9, %r11, 2;\n"
        f"L: {POLL.replace(', 0;', ', %r9;')}@!%p1 bra L;\nD: {READ}"
    ),
    "a parity that is set in each turn": Form(
        "L: and.b32 %r9, %r11, 2;\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r9;\n"
        f"@!%p1 bra L;\n{READ}"
    ),
    "turns that are counted": Form(f"L: {POLL}add.u32 %r9, %r9, 1;\n@!%p1 bra L;\n{READ}"),
    "a sleep in between": Form(
        f"L: {POLL}@%p1 bra D;\nsetp.lt.u32 %p2, %r9, 8;\n@%p2 bra S;\nnanosleep.u32 64;\n"
        f"S: add.u32 %r9, %r9, 1;\nbra L;\nD: {READ}"
    ),
    "a trap after many turns": Form(
        f"L: {POLL}add.u32 %r9, %r9, 1;\nsetp.lt.u32 %p2, %r9, 1000;\n@%p2 bra N;\ntrap;\n"
        f"N: @!%p1 bra L;\n{READ}"
    ),
    "a trap after many turns at the end": Form(
        f"L: {POLL}@%p1 bra D;\nadd.u32 %r9, %r9, 1;\nsetp.lt.u32 %p2, %r9, 1000;\n@%p2 bra L;\n"
        f"trap;\nD: {READ}"
    ),
    "a word": Form(f"L: {LOOK}setp.ne.u32 %p1, %r8, 1;\n@%p1 bra L;\n{READ}", RAISE),
    "a word and a fence": Form(
        f"L: {LOOK.replace('acquire', 'relaxed')}fence.acq_rel.cta;\nsetp.ne.u32 %p1, %r8, 1;\n"
        f"@%p1 bra L;\n{READ}", RAISE,
    ),
    "a word, and its sum in a register": Form(
        f"L: {LOOK}add.u32 %r9, %r8, %r11;\nsetp.lt.u32 %p1, %r9, 6;\n@%p1 bra L;\n{READ}", RAISE
    ),
    "a word and a sleep in between": Form(
        f"L: {LOOK}setp.eq.u32 %p1, %r8, 1;\n@%p1 bra D;\nsetp.lt.u32 %p2, %r9, 8;\n@%p2 bra S;\n"
        f"nanosleep.u32 64;\nS: add.u32 %r9, %r9, 1;\nbra L;\nD: {READ}", RAISE,
    ),
    "a word and what is made of it in vain": Form(
        f"L: {LOOK}setp.eq.u32 %p1, %r8, 1;\nadd.u32 %r21, %r8, 7;\n@!%p1 bra L;\n{READ}", RAISE
    ),
    "a word of a chosen address": Form(
        f"L: add.u32 %r9, %r1, 16;\n{LOOK.replace('%r1+16', '%r9')}setp.eq.u32 %p1, %r8, 0;\n"
        f"@%p1 bra L;\n{READ}", RAISE,
    ),
    "a word in two conditions": Form(
        f"L: {LOOK}setp.eq.u32 %p1, %r8, 0;\nsetp.gt.u32 %p2, %r8, 9;\nor.pred %p3, %p1, %p2;\n"
        f"@%p3 bra L;\n{READ}", RAISE, "bounded",
    ),
    "a word that is polled before": Form(
        f"{LOOK}setp.ne.u32 %p1, %r8, 1;\n@!%p1 bra D;\nL: {LOOK}setp.ne.u32 %p1, %r8, 1;\n"
        f"@%p1 bra L;\nD: {READ}", RAISE,
    ),
    "a word, compared around the end": Form(
        f"L: {LOOK}sub.u32 %r9, %r8, 1;\nsetp.gt.u32 %p1, %r9, 5;\n@%p1 bra L;\n{READ}", RAISE
    ),
    "a negative word": Form(
        f"L: {LOOK.replace('u32', 's32')}setp.ne.s32 %p1, %r8, -1;\n@%p1 bra L;\n{READ}",
        RAISE.replace("u32", "s32").replace("1;", "-1;"),
    ),
    "a negative word, compared without its sign": Form(
        f"L: {LOOK.replace('u32', 's32')}setp.lt.u32 %p1, %r8, 0x80000000;\n@%p1 bra L;\n{READ}",
        RAISE.replace("u32", "s32").replace("1;", "-5;"),
    ),
    "half a word": Form(
        f"L: {LOOK.replace('u32', 'u16')}setp.eq.u32 %p1, %r8, 0;\n@%p1 bra L;\n{READ}",
        RAISE.replace("u32", "u16").replace("1;", "65535;"),
    ),
    "half a word with a sign": Form(
        f"L: {LOOK.replace('u32', 's16')}setp.ne.s32 %p1, %r8, -2;\n@%p1 bra L;\n{READ}",
        RAISE.replace("u32", "u16").replace("1;", "65534;"),
    ),
    "the lowest bits of a word": Form(
        f"sub.u32 %r9, %r4, 31;\n@!%p6 ret;\nL: {LOOK}and.b32 %r10, %r8, 3;\n"
        f"setp.ne.u32 %p1, %r10, %r9;\n@%p1 bra L;\n{READ}", RAISE, "exhausted",
    ),
    "a word, and a fence of a proxy": Form(
        f"L: {LOOK}fence.proxy.async;\nsetp.ne.u32 %p1, %r8, 1;\n@%p1 bra L;\n{READ}", RAISE
    ),
    "what else is in a register does not count": Form(
        f"L: {POLL}and.b32 %r8, %r4, 0; selp.b32 %r9, 1, 0, %p1; or.b32 %r8, %r8, %r9;\n"
        f"setp.eq.u32 %p2, %r8, 0;\n@%p2 bra L;\n{READ}"
    ),
    "one of two numbers, chosen by the answer": Form(
        f"L: {POLL}selp.b32 %r8, 1, 0, %p1;\nselp.b32 %r9, 3, %r8, %p1;\n"
        f"setp.eq.u32 %p2, %r9, 0;\n@%p2 bra L;\n{READ}"
    ),
    "larger numbers for an answer": Form(
        f"L: {POLL}selp.b32 %r8, 2, 3, %p1;\nsetp.eq.u32 %p2, %r8, 3;\n@%p2 bra L;\n{READ}"
    ),
    "negative numbers for an answer": Form(
        f"L: {POLL}selp.b32 %r8, -4, -3, %p1;\nsetp.ne.s32 %p2, %r8, -4;\n@%p2 bra L;\n{READ}"
    ),
    "an answer of several steps": Form(
        f"L: {POLL}selp.b32 %r8, 6, 4, %p1;\nand.b32 %r9, %r8, 2;\nxor.b32 %r10, %r9, 2;\n"
        f"setp.gt.u32 %p2, %r10, 1;\nnot.pred %p3, %p2;\n@!%p3 bra L;\n{READ}"
    ),
    "a word, compared and swapped": Form(
        "L: atom.acquire.cta.shared::cta.cas.b32 %r8, [%r1+16], 1, 1;\nsetp.ne.u32 %p1, %r8, 1;\n"
        f"@%p1 bra L;\n{READ}", RAISE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_loop_that_is_a_wait(name: str) -> None:
    form = FORMS[name]
    right = check(STORE + form.hands, form.text)
    assert right.verdict == form.verdict
    late = check(form.hands + STORE, form.text)
    assert late.rules == {"race"}
    assert sorted(named(late, form.hands + STORE, form.text)) == sorted(
        [STORE.strip(), READ.strip()]
    )
    assert check(STORE, form.text).rules == {"deadlock"}


#: one lane swaps a 1 for %r9, which each turn sets; the other warp looks for the 1 once more
SWAPS = (
    "@!%p6 ret;\nmov.u32 %r9, 1;\nL: atom.acquire.cta.shared::cta.cas.b32 %r8, [%r1+16], 1, %r9;\n"
    f"{{}}\nsetp.ne.u32 %p1, %r8, 1;\n@%p1 bra L;\n{READ}"
)
AGAIN = f"@!%p0 ret;\nM: {LOOK}setp.ne.u32 %p1, %r8, 1;\n@%p1 bra M;\n"
#: no waits, or waits that do more: what is handed over, and the rule of the finding
NO_WAITS: dict[str, tuple[str, str, str]] = {
    "as long as it succeeds": (ARRIVE + STORE, f"L: {POLL}@%p1 bra L;\n{READ}", "deadlock"),
    "another parity in each turn": (
        STORE + ARRIVE,
        "L: xor.b32 %r9, %r9, 1;\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r9;\n"
        f"@!%p1 bra L;\n{READ}",
        "race",
    ),
    "an answer of a failed poll": (
        STORE, f"{POLL}selp.u32 %r8, 5, 6, %p1;\n{_if('eq.u32 %p4, %r8, 6')}", "race"
    ),
    "a number set where it waits": (
        ARRIVE + STORE,
        f"{POLL}@%p1 bra D;\nL: {POLL.replace('%p1', '%p2')}@!%p2 bra L;\nmov.u32 %r9, 1;\n"
        f"D: {_if('eq.u32 %p4, %r9, 1')}",
        "race",
    ),
    "a number set where it waits, behind one answer of both polls": (
        ARRIVE + STORE,
        f"{POLL}@%p1 bra D;\nL: {POLL}@!%p1 bra L;\nmov.u32 %r9, 1;\n"
        f"D: {_if('eq.u32 %p4, %r9, 1')}",
        "race",
    ),
    "an arrival in the loop": (
        STORE,
        f"L: {POLL}@%p1 bra D;\n@%p6 mbarrier.arrive.shared::cta.b64 _, [%r1];\nbra L;\nD: {READ}",
        "race",
    ),
    "an arrival that some turns jump over": (
        STORE,
        f"L: {POLL}@%p1 bra D;\nsetp.ne.u32 %p2, %r9, 1;\n@%p2 bra S;\n"
        f"@%p6 mbarrier.arrive.shared::cta.b64 _, [%r1];\n"
        f"S: add.u32 %r9, %r9, 1;\nbra L;\nD: {READ}",
        "race",
    ),
    "a number set where it waits, or not": (
        ARRIVE + STORE,
        f"L: {POLL}@%p1 bra S;\nmov.u32 %r9, 1;\nS: @!%p1 bra L;\n{_if('eq.u32 %p4, %r9, 1')}",
        "race",
    ),
    "a number set in some threads": (
        ARRIVE + STORE,
        f"L: {POLL}setp.eq.u32 %p2, %r4, 99;\n@%p2 bra S;\nmov.u32 %r9, 1;\nS: @!%p1 bra L;\n"
        f"{_if('eq.u32 %p4, %r9, 1')}",
        "race",
    ),
    "an answer or a number": (
        STORE + ARRIVE,
        f"L: {POLL}setp.lt.or.u32 %p2, %r4, 5, %p1;\nnot.pred %p3, %p1;\n"
        f"and.pred %p3, %p3, %p2;\n@%p3 bra L;\n{READ}",
        "race",
    ),
    "an answer and a number": (
        STORE + ARRIVE,
        f"L: {POLL}not.pred %p3, %p1;\nsetp.lt.and.u32 %p2, %r4, 5, %p3;\n@%p2 bra L;\n{READ}",
        "race",
    ),
    "a number in place of an answer": (
        STORE + ARRIVE,
        f"L: {POLL}selp.b32 %r8, 0, %r9, %p1;\nsetp.ne.u32 %p2, %r8, 0;\n@%p2 bra L;\n{READ}",
        "race",
    ),
    "an answer that chooses bits": (
        STORE + ARRIVE,
        f"L: {POLL}selp.b32 %r8, 3, %r4, %p1;\nselp.b32 %r10, 0, 31, %p1;\n"
        f"and.b32 %r12, %r8, %r10;\nsetp.ne.u32 %p2, %r12, 0;\n@%p2 bra L;\n{READ}",
        "race",
    ),
    "bits of a number where the answer is no": (
        STORE + ARRIVE,
        f"L: {POLL}selp.b32 %r8, 0, -1, %p1;\nand.b32 %r10, %r8, %r9;\n"
        f"setp.ne.u32 %p2, %r10, 0;\n@%p2 bra L;\n{READ}",
        "race",
    ),
    "a number that stands for no answer": (
        STORE + ARRIVE,
        f"L: {POLL}selp.b32 %r8, 2, 3, %p1;\nsetp.eq.u32 %p2, %r8, 1;\n@%p2 bra L;\n{READ}",
        "race",
    ),
    "an answer that is lost on the way": (
        STORE + ARRIVE,
        f"L: {POLL}selp.b32 %r8, 6, 4, %p1;\nand.b32 %r9, %r8, 1;\nxor.b32 %r10, %r9, 1;\n"
        f"setp.gt.u32 %p2, %r10, 1;\nnot.pred %p3, %p2;\n@!%p3 bra L;\n{READ}",
        "race",
    ),
    "a number times an answer": (
        STORE + ARRIVE,
        f"L: {POLL}selp.b32 %r8, 0, 1, %p1;\nmul.lo.u32 %r10, %r8, %r9;\n"
        f"setp.ne.u32 %p2, %r10, 0;\n@%p2 bra L;\n{READ}",
        "race",
    ),
    "a word of which the lowest bits pass by": (
        RAISE + OTHERS + RAISE.replace("1;", "2;"),
        f"sub.u32 %r9, %r4, 31;\n@!%p6 ret;\nL: {LOOK}and.b32 %r10, %r8, 3;\n"
        "setp.ne.u32 %p1, %r10, %r9;\n@%p1 bra L;\n",
        "deadlock",
    ),
    "another word, of an address that was moved in between": (
        "add.u32 %r30, %r1, 16;\n@%p0 st.shared.u32 [%r1+96], %r30;\nbar.sync 1, 64;\n"
        + OTHERS
        + RAISE.replace("+16", "+20").replace("1;", "2;")
        + STORE
        + RAISE.replace("+16", "+24").replace("1;", "2;"),
        "bar.sync 1, 64;\nld.shared.u32 %r9, [%r1+96];\nsetp.eq.u32 %p5, %r9, 3;\n@%p5 ret;\n"
        f"add.u32 %r9, %r9, 4;\n{LOOK.replace('%r1+16', '%r9')}setp.ne.u32 %p1, %r8, 2;\n"
        f"@!%p1 bra D;\nL: {LOOK.replace('%r1+16', '%r9+4')}setp.ne.u32 %p1, %r8, 2;\n"
        f"@%p1 bra L;\nD: {READ}",
        "race",
    ),
    "an answer that is also copied where nothing was asked": (
        STORE + ARRIVE,
        "setp.ne.u32 %p3, %r4, %r4; setp.eq.u32 %p1, %r4, %r4; setp.eq.u32 %p5, %r4, 77;\n"
        f"@%p5 bra A;\nbra.uni C;\nA: {POLL}C: mov.pred %p3, %p1;\n@%p3 bra D;\n"
        f"L: {POLL.replace('%p1', '%p2')}@!%p2 bra L;\nD: {READ}",
        "race",
    ),
    "a parity that is set where an earlier turn has waited": (
        ARRIVE + STORE + ARRIVE.replace("[%r1]", "[%r1+8]"),
        f"mov.u32 %r21, %r1;\nT: {POLL.replace('%r1]', '%r21]')}@%p1 bra D;\n"
        f"L: {POLL.replace('%r1], 0', '%r21], %r9')}@!%p1 bra L;\nmov.u32 %r9, 1;\n"
        "D: add.u32 %r21, %r21, 8; add.u32 %r10, %r10, 1;\nsetp.lt.u32 %p2, %r10, 2;\n"
        f"@%p2 bra T;\n{READ}",
        "race",
    ),
    "a word polled before, whose test is left out": (
        STORE + RAISE,
        "setp.ne.u32 %p5, %r4, %r4; setp.ne.u32 %p1, %r4, %r4;\n"
        f"{LOOK}@%p5 setp.ne.u32 %p1, %r8, 1;\n@!%p1 bra D;\n"
        f"L: {LOOK}setp.ne.u32 %p1, %r8, 1;\n@%p1 bra L;\nD: {READ}",
        "race",
    ),
    "a word that is raised in each turn": (
        "setp.ne.u32 %p5, %r4, 0;\n@%p5 ret;\n"
        "M: atom.relaxed.cta.shared::cta.add.u32 %r8, [%r1+24], 1;\nadd.u32 %r9, %r9, 1;\n"
        "setp.lt.u32 %p2, %r9, 10;\n@%p2 bra M;\n",
        "L: ld.relaxed.cta.shared::cta.u32 %r8, [%r1+24];\nsetp.ne.u32 %p1, %r8, 2;\n@%p1 bra L;\n",
        "deadlock",
    ),
    "another word that is polled before": (
        RAISE + STORE + RAISE.replace("+16", "+24"),
        f"add.u32 %r9, %r1, 8;\n{LOOK.replace('%r1+16', '%r9+8')}setp.ne.u32 %p1, %r8, 1;\n"
        f"@!%p1 bra D;\nL: {LOOK.replace('+16', '+24')}setp.ne.u32 %p1, %r8, 1;\n@%p1 bra L;\n"
        f"D: {READ}",
        "race",
    ),
    "a few turns": (
        STORE + ARRIVE,
        f"L: {POLL}@%p1 bra D;\nadd.u32 %r9, %r9, 1;\nsetp.lt.u32 %p2, %r9, 3;\n@%p2 bra L;\n"
        f"D: {READ}",
        "race",
    ),
    "a way out by a table": (
        ARRIVE + STORE,
        f"T: .branchtargets C, D;\nL: {POLL}selp.u32 %r8, 1, 0, %p1;\nbrx.idx %r8, T;\n"
        f"C: add.u32 %r9, %r9, 1;\nbra L;\nD: {READ}",
        "race",
    ),
    "a way around others' code, past a trap": (
        ARRIVE + STORE,
        f"setp.eq.u32 %p5, %r4, 77;\n@%p5 bra E;\nL: {POLL}add.u32 %r9, %r9, 1;\n"
        f"setp.lt.u32 %p2, %r9, 1000;\n@%p2 bra N;\ntrap;\nE: ret;\nN: @!%p1 bra L;\n{READ}",
        "race",
    ),
    "a word of another thread's choice": (
        RAISE,
        f"L: {LOOK}setp.ne.u32 %p1, %r8, 99;\n@%p1 bra N;\ntrap;\nN: setp.ne.u32 %p1, %r8, 2;\n"
        f"@%p1 bra L;\n{READ}",
        "deadlock",
    ),
    "a word that is swapped for what was found before": (
        STORE + RAISE + OTHERS + AGAIN, SWAPS.format("and.b32 %r9, %r8, 1;"), "deadlock",
    ),
    "a word that is swapped for what it is not": (
        STORE + RAISE + OTHERS + AGAIN, SWAPS.format("mov.u32 %r9, 0;"), "deadlock",
    ),
    "a word of other size over it": (
        "@%p0 st.relaxed.cta.shared::cta.u64 [%r1+16], 0;\n",
        f"L: {LOOK.replace('+16', '+20')}setp.ne.u32 %p1, %r8, 1;\n@%p1 bra L;\n",
        "deadlock race",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_WAITS)
def test_a_loop_that_is_no_wait(name: str) -> None:
    first, second, rule = NO_WAITS[name]
    found = check(first, second)
    assert found.rules == set(rule.split())
    if rule == "race":
        assert READ.strip() in named(found, first, second)


#: how a loop asks whether it has made enough turns: first number, step, and whether it goes on
GIVES_UP = {
    "less": ("0", "1", "lt.u32 %p2, %r9, 1000"),
    "less than very many": ("0", "1", "lt.u32 %p2, %r9, 1000000000"),
    "at most": ("0", "2", "le.u32 %p2, %r9, 2000000000"),
    "greater": ("2000000000", "-1", "gt.u32 %p2, %r9, 1000"),
    "at least": ("1000000000", "-1", "ge.u32 %p2, %r9, 1"),
    "other": ("0", "1", "ne.u32 %p2, %r9, 1000000000"),
    "other, downwards": ("1000000000", "-1", "ne.u32 %p2, %r9, 0"),
    "few": ("7", "1", "lt.u32 %p2, %r9, 12"),
}


@pytest.mark.parametrize("asks", ["in the loop", "before it goes back", "together", "negated"])
@pytest.mark.parametrize("name", GIVES_UP)
def test_a_loop_that_gives_up(name: str, asks: str) -> None:
    """Who gives up reads too early, but not if it asks once more."""
    first, step, goes_on = GIVES_UP[name]
    if asks == "together":
        compare, operands = goes_on.split(" ", 1)
        kind = compare.split(".")
        loop = (
            f"mov.u32 %r9, {first};\nL: {POLL}add.s32 %r9, %r9, {step};\nnot.pred %p3, %p1;\n"
            f"setp.{kind[0]}.and.{kind[1]} {operands}, %p3;\n@%p2 bra L;\nD: "
        )
    elif asks == "in the loop":
        loop = (
            f"mov.u32 %r9, {first};\nL: {POLL}@%p1 bra D;\nadd.s32 %r9, %r9, {step};\n"
            f"setp.{goes_on};\n@%p2 bra L;\nD: "
        )
    elif asks == "negated":
        loop = (
            f"mov.u32 %r9, {first};\nL: {POLL}add.s32 %r9, %r9, {step};\nsetp.{goes_on};\n"
            "not.pred %p3, %p2;\nor.pred %p3, %p3, %p1;\n@!%p3 bra L;\nD: "
        )
    else:
        loop = (
            f"mov.u32 %r9, {first};\nL: {POLL}add.s32 %r9, %r9, {step};\nsetp.{goes_on};\n"
            "not.pred %p3, %p1;\nand.pred %p3, %p3, %p2;\n@%p3 bra L;\nD: "
        )
    wrong = check(STORE + ARRIVE, f"{loop}{READ}")
    assert wrong.rules == {"race"}
    assert STORE.strip() in named(wrong, STORE + ARRIVE, f"{loop}{READ}")
    right = check(STORE + ARRIVE, f"{loop}@%p1 bra B;\nret;\nB: {READ}")
    assert right.verdict in ("exhausted", "bounded")


#: by what is made of an answer, whether the loop goes on for no, ends, or goes on for ever
WRAPS = {
    "add.u32 %r9, %r8, 0xffffffff; setp.gt.u32 %p2, %r9, 5;": "proved",
    "sub.s32 %r9, %r8, 1; setp.lt.s32 %p2, %r9, 0;": "proved",
    "not.b32 %r9, %r8; setp.gt.u32 %p2, %r9, 0xfffffffe;": "proved",
    "sub.u32 %r9, %r8, 1; setp.lt.u32 %p2, %r9, 0;": "race",
    "not.b32 %r9, %r8; setp.eq.s32 %p2, %r9, 0;": "race",
    "add.u32 %r9, %r8, 0xffffffff; setp.le.u32 %p2, %r9, 0xffffffff;": "deadlock",
}


@pytest.mark.parametrize("made", WRAPS)
def test_what_is_made_of_an_answer_is_brought_into_its_type(made: str) -> None:
    """No unsigned number is less than 0, and none is more than the greatest one."""
    loop = f"L: {POLL}selp.u32 %r8, 1, 0, %p1;\n{made}\n@%p2 bra L;\n{READ}"
    found = check(STORE + ARRIVE, loop)
    assert {found.verdict} | found.rules >= {WRAPS[made]}, found


#: what a loop that waits for a word counts its turns for
COUNTS = {
    "nothing": ("add.u32 %r9, %r9, 1;\n", ""),
    "a sleep": ("add.u32 %r9, %r9, 1; nanosleep.u32 %r9;\n", ""),
    "what is done behind": ("add.u32 %r9, %r9, 1;\n", "setp.lt.u32 %p4, %r9, 40;\n@%p4 ret;\n"),
    "what is made of them": (
        "add.u32 %r9, %r9, 1; shr.u32 %r21, %r9, 2;\n", "setp.lt.u32 %p4, %r21, 40;\n@%p4 ret;\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_who_uses_how_often_it_looked_at_a_word_decides_by_that(name: str) -> None:
    """A thread that has looked often waits for threads that do not come."""
    counts, asks = COUNTS[name]
    loop = f"L: {LOOK}{counts}setp.ne.u32 %p1, %r8, 1;\n@%p1 bra L;\n{READ}"
    hangs = "bar.sync 1, 64;" if asks else ""
    found = check(STORE + RAISE, f"{loop}{asks}{hangs}")
    assert (found.verdict == "proved") is (not asks), found
    assert check(STORE + RAISE, loop).verdict == "proved"


#: how a counter of turns gets one of two first numbers, of which no thread gets the second one
BEGINS = {
    "one of two": "mov.u32 %r9, {first};\n@!%p5 bra S;\nmov.u32 %r9, {other};\nS: ",
    "a copy of one of two": (
        "mov.u32 %r21, {first};\n@!%p5 bra S;\nmov.u32 %r21, {other};\nS: mov.u32 %r9, %r21;\n"
    ),
    "one of two copies": (
        "mov.u32 %r21, {first}; mov.u32 %r22, {other};\n@%p5 bra S;\nmov.u32 %r9, %r21;\n"
        "bra.uni T;\nS: mov.u32 %r9, %r22;\nT: "
    ),
    "one under a guard": "mov.u32 %r9, {first}; @%p5 mov.u32 %r9, {other};\n",
    "a copy under a guard": (
        "mov.u32 %r9, {first}; mov.u32 %r21, {other}; @%p5 mov.u32 %r9, %r21;\n"
    ),
    "one of two by a choice": "selp.u32 %r9, {other}, {first}, %p5;\n",
}


@pytest.mark.parametrize("other", [0, 2000])
@pytest.mark.parametrize("name", BEGINS)
def test_a_loop_that_begins_to_count_anywhere(name: str, other: int) -> None:
    """It gives up after three turns, and not if it began with the other number."""
    begins = BEGINS[name].format(first=997, other=other)
    loop = (
        f"setp.eq.u32 %p5, %r4, 77;\n{begins}L: {POLL}@%p1 bra D;\nadd.s32 %r9, %r9, 1;\n"
        "setp.ne.u32 %p2, %r9, 1000;\n@%p2 bra L;\nD: "
    )
    wrong = check(STORE + ARRIVE, f"{loop}{READ}")
    assert wrong.rules == {"race"}
    assert STORE.strip() in named(wrong, STORE + ARRIVE, f"{loop}{READ}")
    right = check(STORE + ARRIVE, f"{loop}@%p1 bra B;\nret;\nB: {READ}")
    assert right.verdict in ("exhausted", "bounded")


ADD = "red.release.cta.shared::cta.add.u32 [%r1+16], 1;\n"
OWN = "st.shared.u32 [%r1+64], 7;\n"
#: a lane waits for another warp, stores and adds; another lane of its warp waits for the sum
LANES = (
    "setp.eq.u32 %p5, %r4, 37;\n@!%p6 bra X;\nL: {look}setp.lt.u32 %p1, %r8, 1;\n@%p1 bra L;\n"
    "{own}X: @!%p5 bra Y;\nM: {look}setp.lt.u32 %p1, %r8, {goal};\n@%p1 bra M;\n{read}Y: ret;\n"
)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("goal", [1, 2])
def test_what_another_lane_of_a_warp_has_added(goal: int, late: bool) -> None:
    """It is known if it is waited for, not because the warp made it."""
    own = ADD + OWN if late else OWN + ADD
    second = LANES.format(look=LOOK, own=own, goal=goal, read=READ)
    found = check(f"@%p0 {ADD}", second)
    if goal == 2 and not late:
        assert found.verdict == "proved"
    else:
        assert found.rules == {"race"}
        assert sorted(named(found, ADD, second)) == sorted([OWN.strip(), READ.strip()])
