"""`python -m tests.ptx.data_campaign --cases N --seed S`: branches on data against known data.

Random kernels branch on words that they load, on several levels and in loops, some of them left
in the middle, or go on there; they trap, and end where a word says so that all threads load or
that they have voted for. They access shared memory, global memory and the threads' own, at places
that may be data as well. What is proved of a kernel whose words are not known has to be right
whatever they are: with words that are given, nothing may fail.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import click

from tests.campaign import Judge, Judged, command
from tests.ptx.test_check import report
from tilesim.checker import Report
from tilesim.ptx.launch import Contents, Pointer

#: two warps, each thread with a word of its own in four areas of 256 bytes, in shared memory and
#: for each CTA in global memory; %rd31 is where the words begin that all threads of a CTA ask for
_THREADS = 64
SETUP = """ld.param.u64 %rd1, [a]; ld.param.u64 %rd5, [b]; mov.u32 %r4, %tid.x;
mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r5, [%rd3];
mov.u32 %r13, %ctaid.x; mul.wide.u32 %rd31, %r13, 4; add.s64 %rd31, %rd1, %rd31;
mul.wide.u32 %rd32, %r13, 1024; add.s64 %rd5, %rd5, %rd32;
mov.u32 %r1, smem; mov.u32 %r10, 0; mad.lo.u32 %r11, %r4, 4, %r1; mov.u32 %r12, 0;
st.shared.u32 [%r11], 0; st.shared.u32 [%r11+256], 0; st.shared.u32 [%r11+512], 0;
st.shared.u32 [%r11+768], 0; bar.sync 0;
.local .align 16 .b8 own[16]; mov.u64 %rd30, own; st.local.u32 [%rd30], 0;
st.local.u32 [%rd30+4], 0; st.local.u32 [%rd30+8], 1; st.local.u32 [%rd30+12], 2;
"""
#: which word: the own one, one of the warp, one of the other warp, one of all, one that data says
_WORDS = ("%r4", "%r4^1", "%r4^32", "0", "%r5")


class _Kernel:
    """One random kernel, as it is written."""

    def __init__(self, oracle: random.Random) -> None:
        self._chance = oracle
        self._labels = 0
        self.lines: list[str] = []
        for _ in range(oracle.randint(3, 6)):
            self._statement(0)

    def _statement(self, depth: int) -> None:
        kinds = ["access"] * 6 + ["compute"] * 2 + ["branch"] * (4 - depth) + ["loop"]
        kinds += ["barrier"] * (3 if depth == 0 else 0) + ["ret"] * (depth > 0) + ["local"]
        kinds += ["agree", "agree", "trap"] if self._chance.random() < 0.9 ** (9 * depth) else []
        if depth > 0 and self._chance.random() < 0.03:
            kinds = ["barrier"]
        getattr(self, f"_{self._chance.choice(kinds)}")(depth)

    def _block(self, depth: int) -> None:
        for _ in range(self._chance.randint(1, 2)):
            self._statement(depth)

    def _label(self) -> str:
        self._labels += 1
        return f"L{self._labels}"

    def _barrier(self, depth: int) -> None:
        self.lines.append(self._chance.choice(("bar.sync 0;", "bar.sync 0;", "bar.warp.sync -1;")))

    def _jump(self, how: str) -> None:
        """Where data says so, or for some lanes."""
        oracle = self._chance
        data, bit = oracle.choice((("%r5", 1), ("%r5", 2), ("%r12", 1), ("%r4", 16), ("%r10", 1)))
        self.lines.append(f"and.b32 %r21, {data}, {bit}; setp.eq.u32 %p2, %r21, 0; @%p2 {how};")

    def _ret(self, depth: int) -> None:
        if self._chance.random() < 0.5:
            self.lines.append("ret;")
        else:
            self._jump("ret")

    def _trap(self, depth: int) -> None:
        self._jump("trap")

    def _agree(self, depth: int) -> None:
        """All threads end, or none, as a word says, or what they vote; not in an arm."""
        oracle = self._chance
        if oracle.random() < 0.5:
            self.lines.append(f"ld.global.u32 %r23, [%rd31+{oracle.choice((0, 4, 128))}];")
        else:
            self.lines.append("and.b32 %r21, %r5, 1; setp.eq.u32 %p2, %r21, 0;")
            self.lines.append("bar.red.popc.u32 %r23, 0, %p2;")
        self.lines.append("and.b32 %r21, %r23, 1; setp.eq.u32 %p2, %r21, 0; @%p2 bra OUT;")

    def _local(self, depth: int) -> None:
        """A word of the thread's own memory, which says where it accesses memory next."""
        oracle = self._chance
        word = oracle.choice(("0", "%r10", "%r5"))
        self.lines.append(f"mov.u32 %r20, {word}; and.b32 %r20, %r20, 3;")
        self.lines.append("mul.wide.u32 %rd20, %r20, 4; add.s64 %rd20, %rd30, %rd20;")
        how = oracle.choice(("ld.local.u32 %r10, [%rd20];", "st.local.u32 [%rd20], %r10;"))
        self.lines.append(f"{how} and.b32 %r10, %r10, 3;")

    def _compute(self, depth: int) -> None:
        oracle = self._chance
        self.lines.append(
            oracle.choice(
                ("mov.u32 %r10, 1;", "xor.b32 %r10, %r10, 1;", "mov.u32 %r10, %r12;",
                 "and.b32 %r10, %r5, 3;", "and.b32 %r10, %r12, 3;")
            )
        )  # fmt: skip

    def _access(self, depth: int) -> None:
        """The address goes to %r20 or %rd20."""
        oracle = self._chance
        word = oracle.choice(_WORDS)
        base, _, flip = word.partition("^")
        self.lines.append(f"xor.b32 %r20, {base}, {flip or 0}; and.b32 %r20, %r20, 63;")
        area = oracle.choice(("0", "64", "%r10*64"))
        if area == "%r10*64":
            self.lines.append("mad.lo.u32 %r20, %r10, 64, %r20;")
        else:
            self.lines.append(f"add.u32 %r20, %r20, {area};")
        if oracle.random() < 0.7:
            self.lines.append("mad.lo.u32 %r20, %r20, 4, %r1;")
            space, at = "shared", "[%r20]"
        else:
            self.lines.append("mul.wide.u32 %rd20, %r20, 4; add.s64 %rd20, %rd5, %rd20;")
            space, at = "global", "[%rd20]"
        value = oracle.choice(("%r4", "7", "%r5", "%r10"))
        self.lines.append(
            oracle.choice(
                (f"ld.{space}.u32 %r12, {at};", f"ld.{space}.u32 %r12, {at};",
                 f"st.{space}.u32 {at}, {value};", f"st.{space}.u32 {at}, {value};",
                 f"red.{space}.add.u32 {at}, 1;", f"atom.{space}.add.u32 %r12, {at}, 1;")
            )
        )  # fmt: skip

    def _branch(self, depth: int) -> None:
        oracle, other, end = self._chance, self._label(), self._label()
        data = oracle.choice(("%r5", "%r5", "%r5", "%r12", "%r4", "%r10"))
        bit = oracle.choice((1, 2)) if data != "%r4" else oracle.choice((1, 16, 32))
        self.lines.append(
            f"and.b32 %r21, {data}, {bit}; setp.eq.u32 %p2, %r21, 0; @%p2 bra {other};"
        )
        self._block(depth + 1)
        self.lines.append(f"bra.uni {end};")
        self.lines.append(f"{other}: mov.u32 %r22, 0;")
        if oracle.random() < 0.5:
            self._block(depth + 1)
        self.lines.append(f"{end}: mov.u32 %r22, 1;")

    def _loop(self, depth: int) -> None:
        if depth > 1:
            return
        head, latch, end, oracle = self._label(), self._label(), self._label(), self._chance
        turns, counter = oracle.choice(("%r5", "2", "3")), f"%r{30 + depth}"
        self.lines.append(f"mov.u32 {counter}, 0;")
        self.lines.append(f"{head}: and.b32 %r10, {counter}, 3;")
        self._block(depth + 1)
        if oracle.random() < 0.5:
            self._jump(f"bra {oracle.choice((latch, end))}")
            self._statement(depth + 1)
        self.lines.append(f"{latch}: add.u32 {counter}, {counter}, 1;")
        self.lines.append(f"setp.lt.u32 %p3, {counter}, {turns}; @%p3 bra {head};")
        self.lines.append(f"{end}: mov.u32 %r22, 2;")


def kernel(seed: int) -> str:
    """The body of a random kernel."""
    lines = (*_Kernel(random.Random(seed)).lines, "OUT: mov.u32 %r22, 3;")
    return SETUP + "\n".join(lines)


def verdict(body: str, words: tuple[int, ...] = (), *, ctas: int = 1) -> Report:
    """What `check` says of it, with these words of data or with ones that are not known."""
    known = Contents("u32", words + words[:ctas]) if words else None
    zero = Contents("u32", (0,) * 256 * ctas)
    values = (Pointer("a", 4 * (_THREADS + ctas), 0, known), Pointer("b", 1024 * ctas, 0, zero))
    params = (".param .u64 a", ".param .u64 b")
    return report(body, params=params, values=values, warps=2, grid=ctas)


def contents(seed: int, times: int) -> Iterator[tuple[int, ...]]:
    """Words of data: all the same, all but one, each of its own."""
    oracle = random.Random(seed)
    for word in range(4):
        yield (word,) * _THREADS
    for _ in range(times):
        few = oracle.sample(range(4), oracle.randint(2, 4))
        yield tuple(oracle.choice(few) for _ in range(_THREADS))


def judged(number: int, times: int, ctas: int = 1) -> Judged:
    """The verdict where the words are not known; what fails although that is `proved`."""
    body = kernel(number)
    found = verdict(body, ctas=ctas)
    wrong = ""
    if found.verdict == "failed":
        every = (verdict(body, words, ctas=ctas) for words in contents(number, times))
        wrong = "proved of all words" if all(one.verdict == "proved" for one in every) else ""
    for words in contents(number, times) if found.verdict == "proved" else ():
        given = verdict(body, words, ctas=ctas)
        if given.verdict == "failed":
            wrong = f"with {words}: {given.findings[0].message}"
            break
    return Judged(found.verdict, wrong)


@command
@click.option("--times", default=4, show_default=True, help="Random words of a kernel.")
@click.option("--ctas", default=1, show_default=True)
def main(times: int, ctas: int) -> Judge:
    """Compare what is said of kernels whose words are not known with kernels of given words."""
    return partial(judged, times=times, ctas=ctas)


if __name__ == "__main__":
    main()
