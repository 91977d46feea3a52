"""Data that nobody knows: it goes where data goes, and where it steers nothing is proved."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import ARRIVE, FIRST, HEAD, INIT, WAIT, lines, report
from tilesim.checker import Report, check
from tilesim.ptx.launch import Contents, Launch, Pointer, Scalar
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import LaunchError

ONE = (".param .u64 a",)
#: every lane loads its word of a
LOAD = (
    "ld.param.u64 %rd1, [a]; cvta.to.global.u64 %rd1, %rd1; mov.u32 %r4, %tid.x;\n"
    "mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2;\n"
    "ld.global.u32 %r5, [%rd3];\n"
)


def with_a(body: str, *values: int, warps: int = 1, grid: int = 1) -> Report:
    """The report of a kernel with a buffer of 4,096 bytes, of which the first words are known."""
    known = Contents("u32", values) if values else None
    given = (Pointer("a", 4096, 0, known),)
    return report(body, params=ONE, values=given, warps=warps, grid=grid)


def open_at(found: Report, needs: int, source: int, what: str) -> None:
    """Nothing is proved: one line needs what another one (from the first of the body) gave."""
    assert found.verdict == "bounded"
    (reason,) = found.reasons
    assert f"k.ptx:{FIRST + needs} depends on a value that is not known: {what}" in reason
    assert f"(k.ptx:{FIRST + source})" in reason
    if "contents" in what:
        assert reason.endswith("give the contents of a in the launch description")


STEERS = {
    "branch": "setp.eq.u32 %p2, %r5, 7;\n@%p2 ret;\nbar.warp.sync -1;",
    "address": "mov.u32 %r1, smem; add.s32 %r1, %r1, %r5;\nst.release.cta.shared.u32 [%r1], %r4;",
    "lanes that store": "mov.u32 %r1, smem; setp.eq.u32 %p2, %r5, 7;\n"
    "@%p2 st.release.cta.shared.u32 [%r1], 1;",
    "parity": INIT.replace("\n", " ") + ARRIVE.replace("\n", " ")
    + "\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r5;",
    "count": "mov.u32 %r1, smem; elect.sync _|%p0, -1;\n"
    "@%p0 mbarrier.init.shared::cta.b64 [%r1], %r5;",
    "barrier": "\nbar.sync %r5;",
}  # fmt: skip


@pytest.mark.parametrize("steers", STEERS.values(), ids=STEERS)
def test_what_nobody_knows_leaves_open_whatever_it_decides(steers: str) -> None:
    open_at(with_a(LOAD + steers), 4, 2, "the contents of a, which ld reads")
    on_its_way = (
        "mov.u32 %r11, smem; mad.lo.u32 %r11, %r4, 4, %r11; st.shared.u32 [%r11+2048], %r5;"
        "mov.u32 %r5, 0; shfl.sync.idx.b32 %r5, %r5, 0, 31, -1; ld.shared.u32 %r5, [%r11+2048];"
        "xor.b32 %r5, %r5, 1;"
    )
    open_at(with_a(LOAD + on_its_way + steers), 4, 2, "the contents of a, which ld reads")


@pytest.mark.parametrize("slow", ["", "bar.sync 0;"])
def test_the_one_end_of_a_kernel_may_stand_in_the_middle(slow: str) -> None:
    """What a branch on data leads to is written behind ``ret``, and leads back: arithmetic is left
    out, a barrier is not."""
    body = "setp.eq.u32 %p2, %r5, 7;\n@%p2 bra SLOW;\nMEET: bar.warp.sync -1; bar.sync 0;\n"
    body += f"ret;\nSLOW: {slow} add.s32 %r5, %r5, 1; bra MEET;\n"
    found = with_a(LOAD + body)
    if slow:
        open_at(found, 4, 2, "the contents of a, which ld reads")
    else:
        assert found.verdict == "proved"


@pytest.mark.parametrize(
    "add", ["red.shared.add.u32 [%r1], %r5;", "red.global.add.u32 [%rd1], %r5;"]
)
def test_data_may_be_added_up(add: str) -> None:
    """A histogram: nobody knows what is added, and where is known."""
    begin = "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p2, %r2, 0;\n"
    begin += "@%p2 st.shared.u32 [%r1], 0;\nbar.sync 0;\n"
    assert with_a(LOAD + begin + add, warps=2).verdict == "proved"


def test_contents_that_are_given_decide() -> None:
    body = (
        "ld.param.u64 %rd1, [a];\nld.global.u32 %r5, [%rd1+4]; setp.eq.u32 %p2, %r5, 0;\n@%p2 ret;"
        f"\n{INIT}{WAIT}"
    )
    assert with_a(body, 1, 0).verdict == "proved"
    wrong = with_a(body, 1, 7)
    assert wrong.rules == {"deadlock"}
    assert lines(wrong) == [6]
    ends = with_a(body, 1)
    assert (set(ends.rules), lines(ends)) == ({"deadlock"}, [6])
    assert f"if the threads go on at k.ptx:{FIRST + 2}, where data may end them" in ends.covers


def test_a_page_that_is_known_is_not_the_page_of_another() -> None:
    """Words of a say which word of b a CTA writes."""
    body = (
        "ld.param.u64 %rd1, [a]; ld.param.u64 %rd4, [b]; mov.u32 %r4, %ctaid.x;\n"
        "mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r5, [%rd3];\n"
        "mul.wide.u32 %rd5, %r5, 4; add.s64 %rd6, %rd4, %rd5; elect.sync _|%p0, -1;\n"
        "@%p0 st.global.u32 [%rd6], %r4;"
    )
    found = {
        pages: report(
            body, params=(*ONE, ".param .u64 b"), grid=2,
            values=(Pointer("a", 8, 0, Contents("u32", pages)), Pointer("b", 64)),
        )
        for pages in ((3, 5), (3, 3), (3,))
    }  # fmt: skip
    assert found[3, 5].verdict == "proved"
    assert found[3, 3].rules == {"race"}
    assert lines(found[3, 3]) == [3]
    (reason,) = found[(3,)].reasons
    assert reason.startswith(f"race at k.ptx:{FIRST + 3}, if data allows it: k (CTA 1 warp 0) ")
    assert f"the contents of a, which ld reads (k.ptx:{FIRST + 1})" in reason


def test_a_byte_that_is_stored_is_known_beside_others_that_are_not() -> None:
    """As the role of a warp in shared memory, beside tiles."""
    role = (
        LOAD + "mov.u32 %r1, smem; mov.u32 %r2, 2; elect.sync _|%p0, -1;\n"
        "@%p0 st.shared.u8 [%r1+64], %r2; @%p0 st.shared.u8 [%r1+{data}], %r5;\nbar.warp.sync -1;\n"
        "ld.shared.u8 %r6, [%r1+64]; setp.ne.u32 %p2, %r6, 2;\n@%p2 ret;"
    )
    assert with_a(role.format(data=65)).verdict == "proved"
    open_at(with_a(role.format(data=64)), 7, 2, "the contents of a, which ld reads")


def test_who_waits_for_what_comes_behind_hangs_not() -> None:
    """Warp 1 would arrive if it were known that it does."""
    body = (
        LOAD + "mov.u32 %r1, smem; mov.u32 %r2, 1; setp.eq.u32 %p0, %r4, 0;\n"
        "@%p0 mbarrier.init.shared::cta.b64 [%r1], %r2;\nbar.sync 0;\n"
        "setp.lt.u32 %p2, %r4, 32; @%p2 bra W;\nsetp.eq.u32 %p3, %r4, 32;\n"
        "setp.eq.u32 %p4, {steers}, 99;\n@%p4 ret;\n@%p3 mbarrier.arrive.shared::cta.b64 _, [%r1];"
        f"\nret;\nW: {WAIT}"
    )
    open_at(with_a(body.format(steers="%r5"), warps=2), 9, 2, "the contents of a, which ld reads")
    assert with_a(body.format(steers="%r4"), warps=2).verdict == "proved"


def test_arithmetic_behind_a_branch_on_data_is_left_out() -> None:
    slow = (
        LOAD + "setp.lt.u32 %p2, %r5, 7; mov.u32 %r6, 1; mov.u32 %r8, 1;\n@%p2 bra FAST;\n"
        "{arm}\nFAST: add.u32 %r7, %r6, 1;\nmov.u32 %r1, smem; mov.u32 %r9, {used};\n"
        "setp.eq.u32 %p3, %r9, 9;\n@%p3 bar.sync 0;"
    )
    harmless = "add.u32 %r6, %r6, 1; ex2.approx.f32 %f1, %f1;"
    assert with_a(slow.format(arm=harmless, used="%r8")).verdict == "proved"
    open_at(
        with_a(slow.format(arm=harmless, used="%r7")), 9, 2, "the contents of a, which ld reads"
    )
    nobody_wrote = "mov.u32 %r1, smem; ld.shared.u32 %r6, [%r1];"
    for line, arm in ((5, nobody_wrote), (4, "bar.warp.sync -1;")):
        found = with_a(slow.format(arm=arm, used="%r8"))
        open_at(found, line, 2, "the contents of a, which ld reads")


def test_arithmetic_that_is_guarded_by_data_gives_data() -> None:
    body = LOAD + "mov.u32 %r6, 1; setp.lt.u32 %p2, %r5, 7;\n@%p2 mov.u32 %r6, 2;\n{used}"
    harmless = with_a(body.format(used="add.u32 %r7, %r6, 1;"))
    assert harmless.verdict == "proved"
    steers = with_a(body.format(used="setp.eq.u32 %p3, %r6, 9;\n@%p3 bar.sync 0;"))
    open_at(steers, 6, 2, "the contents of a, which ld reads")


def test_a_number_that_the_launch_does_not_say() -> None:
    body = "ld.param.u32 %r5, [n];\nsetp.eq.u32 %p2, %r5, 0;\n{then}"
    given = (Scalar("n", "u32", None),)
    found = report(body.format(then="@%p2 bar.sync 0;"), params=(".param .u32 n",), values=given)
    open_at(found, 2, 0, "byte 0 of n, which the launch description does not say")
    used = report(
        body.format(then="selp.u32 %r6, 1, 2, %p2;"), params=(".param .u32 n",), values=given
    )
    assert used.verdict == "proved"


#: every lane reads the word of b that its word of a says
GATHER = LOAD.replace("\n", " ") + (
    "ld.param.u64 %rd5, [b]; mul.wide.u32 %rd6, %r5, 4; add.s64 %rd7, %rd5, %rd6; "
    "mov.u32 %r1, smem; mad.lo.u32 %r1, %r4, 4, %r1;\n{read}\n"
)
READS = {
    "load": "ld.global.u32 %r6, [%rd7];",
    "vector": "and.b64 %rd7, %rd7, -8; ld.global.v2.u32 {%r6, %r7}, [%rd7];",
    "copy": "cp.async.ca.shared.global [%r1], [%rd7], 4; cp.async.wait_all;",
}


def gathered(read: str, b: Contents | None = None, warps: int = 1) -> Report:
    given = (Pointer("a", 4096), Pointer("b", 4096, 0, b))
    params = (".param .u64 a", ".param .u64 b")
    return report(GATHER.replace("{read}", read), params=params, values=given, warps=warps)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_is_only_read_may_be_read_anywhere(read: str) -> None:
    found = gathered(read)
    assert found.verdict == "proved", found
    assert "in bounds that are computed from the contents of a, which ld reads" in found.covers


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_is_written_too_may_not(read: str) -> None:
    found = gathered(f"{read}\nst.global.u32 [%rd5], %r4;")
    assert found.verdict == "bounded"
    assert "depends on a value that is not known: the contents of a" in found.reasons[0]


def test_what_is_read_anywhere_decides_nothing() -> None:
    found = gathered(f"{READS['load']}\nsetp.eq.u32 %p2, %r6, 7;\n@%p2 bar.sync 0;")
    assert found.verdict == "bounded"
    assert "depends on a value that is not known: the contents of b" in found.reasons[0]
    # of what is known in b, it is not known which of it is read
    given = Contents("u32", (7,) * 1024)
    assert gathered(READS["load"], given).verdict == "proved"
    known = gathered(f"{READS['load']}\nsetp.eq.u32 %p2, %r6, 7;\n@%p2 bar.sync 0;", given)
    assert known.verdict == "bounded"
    assert "depends on a value that is not known: the contents of a" in known.reasons[0]


def test_what_two_warps_read_anywhere_is_not_the_same() -> None:
    """Both store to one word what they have read: each may have read another one."""
    store = "and.b32 %r8, %r4, 31; mov.u32 %r1, smem; mad.lo.u32 %r1, %r8, 4, %r1;\n"
    store += "st.shared.u32 [%r1], %r6;"
    assert gathered(f"{READS['load']}\n{store}").verdict == "proved"
    assert gathered(f"{READS['load']}\n{store}", warps=2).rules == {"race"}


def test_who_reads_anywhere_races_where_it_puts_that() -> None:
    apart = READS["copy"]
    assert gathered(apart, warps=2).verdict == "proved"
    wrong = gathered(f"{apart}\nst.shared.u32 [%r1+128], %r4;", warps=2)
    assert wrong.verdict == "failed"
    assert wrong.rules == {"race"}
    assert lines(wrong) == [1, 2]


def test_of_many_ctas_those_differ_of_which_nobody_knows_what_they_load() -> None:
    """CTA 0 has its number in its hand, the others load theirs: one of 200 could hang."""
    body = (
        "ld.param.u64 %rd1, [a];\nld.global.u32 %r5, [%rd1]; mov.u32 %r4, %ctaid.x;\n"
        "setp.eq.u32 %p2, %r4, {known}; selp.u32 %r6, 1, %r5, %p2; setp.eq.u32 %p3, %r6, 7;\n"
        f"@!%p3 ret;\n{INIT}{WAIT}"
    )
    wrong = with_a(body.format(known=0), grid=200)
    assert (set(wrong.rules), lines(wrong)) == ({"deadlock"}, [7])
    assert f"go on at k.ptx:{FIRST + 3}, where data may end them" in wrong.covers
    told = body.replace("ld.global.u32 %r5, [%rd1];", "mov.u32 %r5, 2;")
    assert with_a(told.format(known=0), grid=200).verdict == "proved"


def test_contents_have_to_fit_their_buffer() -> None:
    with pytest.raises(LaunchError, match="contents of 8 bytes, the buffer has 4"):
        report("", params=ONE, values=(Pointer("a", 4, 0, Contents("u64", (1,))),))
    two = (Pointer("a", 8, 0, Contents("u32", (1,))), Pointer("a", 8, 4, Contents("u32", (2,))))
    with pytest.raises(LaunchError, match="different contents"):
        report("", params=(*ONE, ".param .u64 b"), values=two)


@pytest.mark.parametrize("known", [(), (3,) * 32], ids=["unknown", "known"])
def test_lines_of_an_inlined_function_are_told_as_findings_tell_them(
    known: tuple[int, ...],
) -> None:
    inlined = "\n.loc 1 {} 5, function_name $L0, inlined_at 1 {} 3\n"
    body = (
        LOAD.replace("ld.global", inlined.format(8, 41) + "ld.global")
        + inlined.format(9, 42) + "bar.sync %r5;\n.loc 1 43 1\nret;\n"
    )  # fmt: skip
    head = HEAD.format(params=ONE[0]).replace(".visible", '.file 1 "user.cu"\n.visible')
    text = f"{head}{body}}}\n.section .debug_str {{ $L0: .b8 102,0 }}\n"
    numbers = {line: n for n, line in enumerate(text.splitlines(), 1)}
    (asks,) = (n for line, n in numbers.items() if line.startswith("bar.sync"))
    (loads,) = (n for line, n in numbers.items() if line.startswith("ld.global"))
    module = read(text, "k.ptx")
    contents = Contents("u32", known) if known else None
    launch = Launch("k", (1, 1, 1), (32, 1, 1), params=(Pointer("a", 128, 0, contents),))
    found = check(lower(module, module.entries[0], launch))
    if known:
        assert found.verdict == "proved"
        return
    assert found.verdict == "bounded"
    (reason,) = found.reasons
    assert reason.startswith(f"barrier.sync at user.cu:42 (user.cu:9, k.ptx:{asks}) depends on")
    assert f"which ld reads (user.cu:41, user.cu:8, k.ptx:{loads});" in reason


def test_a_copy_may_add_data_to_data() -> None:
    added = (
        f"{INIT}ld.param.u64 %rd1, [a]; add.u32 %r8, %r1, 128;\n"
        "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 64;\n"
        "@%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes "
        f"[%r8], [%rd1+64], 64, [%r1];\n{WAIT}"
        "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1+128], [%r8], 64;\n"
        "@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;\n"
        "@%p0 ld.global.u32 %r9, [%rd1+128];\n"
    )
    assert with_a(f"{added}@%p0 st.global.u32 [%rd1+256], %r9;\n", 1).verdict == "proved"
    steered = with_a(f"{added}@%p0 bar.sync %r9;\n", 1)
    open_at(steered, 12, 5, "the contents of a, which")
