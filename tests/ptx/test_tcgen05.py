"""tcgen05 and launch control read from PTX: descriptors, and small kernels beside their twins."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest

from tests.gpu.programs import PROGRAMS
from tilesim.checker import Report, check
from tilesim.ir.instruction_descriptor import decode, encode
from tilesim.ir.ops.tcgen05_mma import Tcgen05Mma, Tcgen05MmaSp, Tcgen05Product
from tilesim.ir.program import Strict, instructions
from tilesim.ptx.launch import Launch, Parameter, Scalar, Struct
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import Unsupported

PRODUCTS = [
    op for program in PROGRAMS.values() for op in instructions(program)
    if isinstance(op, Tcgen05Product)
]  # fmt: skip


def test_a_descriptor_says_what_the_instruction_is() -> None:
    assert {op.kind for op in PRODUCTS} >= {"f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4nvf4"}
    for op in PRODUCTS:
        form = decode(encode(op), op.kind)
        packed = 2 if op.kind in ("mxf4", "mxf4nvf4") else 1
        assert (form.m, form.n) == op.shape[:2]
        assert (form.a_trans, form.b_trans) == (op.a_trans, op.b_trans)
        assert form.a == (op.a_type or op.a.dtype.name)
        assert form.b == (op.b_type or op.b.dtype.name)
        assert form.d == op.d.dtype.name
        assert form.sparse == isinstance(op, Tcgen05MmaSp)
        if isinstance(op, Tcgen05Mma) and op.block_scaled:
            assert form.scale_ids == (op.scale_id, op.scale_id)
            assert form.ue8m0 == (packed == 1 or op.scale_vec == 2)


# ---------------------------------------------------------------------- small kernels

#: the line of the first line of a body
FIRST = 8
HEAD = (
    ".version 9.0\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
    ".visible .entry k()\n{\n.reg .pred %p<9>; .reg .b32 %r<80>; .reg .b64 %rd<40>; "
    ".reg .b128 %q<3>;\n"
)
#: an address of tensor memory in %r9 (slot at 8000), mbarriers at 8008 and 8016, zeros below
START = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5; shl.b32 %r4, %r2, 6;\n"
    "add.s32 %r5, %r1, %r4; st.shared.v4.b32 [%r5], {0,0,0,0}; "
    "st.shared.v4.b32 [%r5+16], {0,0,0,0}; st.shared.v4.b32 [%r5+32], {0,0,0,0}; "
    "st.shared.v4.b32 [%r5+48], {0,0,0,0};\n"
    "setp.eq.u32 %p1, %r3, 0; setp.eq.u32 %p2, %r2, 0; fence.proxy.async.shared::cta;\n"
    "@%p2 mbarrier.init.shared::cta.b64 [%r1+8200], 1; "
    "@%p2 mbarrier.init.shared::cta.b64 [%r1+8208], 128; bar.warp.sync -1;\n"
    "add.s32 %r6, %r1, 8192; @!%p1 bra ALLOCATED;\n"
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r6], 32;\n"
    "ALLOCATED: bar.sync 0; ld.shared.b32 %r9, [%r1+8192]; shl.b32 %r7, %r3, 21; "
    "add.s32 %r8, %r9, %r7; mov.pred %p4, 0; mov.pred %p5, 0;\n"
    "shr.u32 %r10, %r1, 4; cvt.u64.u32 %rd1, %r10; and.b64 %rd2, %rd1, 16383; "
    "or.b64 %rd3, %rd2, {descriptor}; mov.u32 %r60, {form};\n"
)
#: f16, 128 x 8 x 16, without swizzle: core matrices of 128 bytes, 8-row groups 256 bytes apart
DESCRIPTOR = 1 << 46 | (256 >> 4) << 32 | (128 >> 4) << 16
FORM = 1 << 4 | (8 >> 3) << 17 | (128 >> 4) << 24
MULTIPLY = (
    "tcgen05.mma.cta_group::1.kind::f16 [%r9], %rd3, %rd3, %r60, %p4; "
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1+8200];\n"
)
LOAD = "tcgen05.ld.sync.aligned.32x32b.x8.b32 {%r20,%r21,%r22,%r23,%r24,%r25,%r26,%r27}, [%r8];\n"
FREE = (
    "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;\n"
    "@!%p1 bra END;\ntcgen05.dealloc.cta_group::1.sync.aligned.b32 %r9, 32;\nEND: ret;\n}\n"
)


def wait(barrier: int, parity: int = 0, label: str = "W") -> str:
    return (
        f"{label}: mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r1+{barrier}], {parity}; "
        f"@!%p6 bra {label}; tcgen05.fence::after_thread_sync;\n"
    )


def report(
    body: str, *, strict: Strict = "practice", form: int = FORM, descriptor: int = DESCRIPTOR,
    end: str = FREE,
) -> Report:  # fmt: skip
    start = START.replace("{descriptor}", str(descriptor)).replace("{form}", str(form))
    module = read(HEAD + start + body + end, "k.ptx")
    launch = Launch("k", (1, 1, 1), (128, 1, 1), (1, 1, 1), 16384)
    return check(lower(module, module.entries[0], launch), strict=strict)


def lines(found: Report) -> list[str]:
    """What the lines of the first finding's participants say."""
    text = (HEAD + START + FOUND[0]).splitlines()
    return sorted(text[p.loc.line - 1] for p in found.findings[0].participants)


FOUND = [""]


def failed(body: str, rule: str, *texts: str) -> None:
    """The kernel fails by a rule; each of these texts stands in a line of its first finding."""
    FOUND[0] = body
    found = report(body)
    assert found.verdict == "failed"
    assert found.rules == {rule}
    for text in texts:
        assert any(text in line for line in lines(found)), lines(found)


ONCE = f"@!%p2 bra ISSUED;\n{MULTIPLY}ISSUED: bar.warp.sync -1;\n"
READ = f"{LOAD}tcgen05.wait::ld.sync.aligned;\n"


#: the other warps end, which counts for the barrier of the one that frees
_ENDS = FREE.replace("bar.sync 0;", "@!%p1 bra END; bar.sync 0;", 1)


def test_an_exit_hands_on_no_order_of_tensor_memory() -> None:
    """A barrier that exits release comes after them in time (E9), behind no tcgen05.fence (G22)."""
    body = ONCE + wait(8200) + READ
    assert report(body, strict="ptx").verdict == "proved"
    ends = report(body, end=_ENDS)
    assert ends.rules == {"tmem-lifetime"}
    (finding,) = ends.findings
    assert {p.warp for p in finding.participants} == {0, 1}


def test_a_load_is_of_the_lanes_of_its_warp() -> None:
    """Hardware is said to route what an address in the first quarter of the lanes names (U21)."""
    nowhere = ONCE + wait(8200) + READ.replace("%r8", "%r9")
    found = report(nowhere)
    assert found.verdict == "proved"
    line = (HEAD + START + nowhere).splitlines().index(LOAD.strip().replace("%r8", "%r9")) + 1
    (leaning,) = (leaning for leaning in found.leanings if leaning.name == "U21")
    assert [loc.line for loc in leaning.locs] == [line]
    FOUND[0] = nowhere
    found = report(nowhere, strict="ptx")
    assert found.verdict == "failed"
    assert found.rules == {"out-of-bounds"}
    assert lines(found) == [LOAD.strip().replace("%r8", "%r9")]
    other = "xor.b32 %r8, %r8, 4194304;\n"
    failed(ONCE + wait(8200) + other + READ, "out-of-bounds", "tcgen05.ld")


def test_a_product_is_complete_when_its_commit_is() -> None:
    assert report(ONCE + wait(8200) + READ).verdict == "proved"
    failed(ONCE + READ + wait(8200), "tcgen05-order", "tcgen05.mma", "tcgen05.ld")


AGAIN = (
    f"{wait(8208, label='V')}@!%p2 bra SECOND;\n{MULTIPLY}SECOND: bar.warp.sync -1;\n"
    f"{wait(8200, 1, 'X')}"
)
RELEASE = "tcgen05.fence::before_thread_sync; mbarrier.arrive.shared::cta.b64 _, [%r1+8208];\n"


def test_columns_are_given_back_when_their_load_is_over() -> None:
    assert report(ONCE + wait(8200) + READ + RELEASE + AGAIN).verdict == "proved"
    early = ONCE + wait(8200) + LOAD + RELEASE + "tcgen05.wait::ld.sync.aligned;\n" + AGAIN
    failed(early, "tcgen05-order", "tcgen05.ld", "tcgen05.mma")


ZEROS = "st.shared.v4.b32 [%r5+16], {0,0,0,0}; "


def test_what_is_made_of_bytes_that_nothing_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run shows it: the numbers of the result are not computed."""
    store = f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8+16], {{{','.join(['%r2'] * 8)}}};\n"
    stored = (
        f"{store}tcgen05.wait::st.sync.aligned;\ntcgen05.fence::before_thread_sync; bar.sync 0; "
        "tcgen05.fence::after_thread_sync;\n"
    )
    use = f"{wait(8200)}{READ}st.shared.b32 [%r5], %r20;\n"
    of_shared, of_tensor = ONCE, stored + ONCE.replace("[%r9], %rd3,", "[%r9], [%r9+16],")
    for product in (of_shared, of_tensor):
        assert report(product + use, strict="ptx").verdict == "proved"
    monkeypatch.setattr(sys.modules[__name__], "START", START.replace(ZEROS, ""))
    for product in (of_shared, of_tensor):
        found = report(product + use)
        assert found.verdict == "bounded"
        assert "what tcgen05.mma makes of bytes of smem+0 that nothing" in found.reasons[0]
    rest = re.sub(r"st\.shared\.v4\.b32 \[%r5[^;]*; ?", "", START)
    elsewhere = rest.replace("fence.proxy", "@%p2 st.shared.b32 [%r1+12288], 0; fence.proxy")
    monkeypatch.setattr(sys.modules[__name__], "START", elsewhere)
    assert report(of_shared + use).rules == {"uninitialised-read"}


def test_a_product_of_all_lanes_is_many() -> None:
    every = ONCE.replace("@!%p2", "@!%p1")
    assert "tcgen05-order" in report(every + wait(8200) + READ).rules


def test_stores_are_complete_before_a_product_reads_them() -> None:
    values = ",".join(["%r2"] * 8)
    store = f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8+16], {{{values}}};\n"
    meet = "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;\n"
    tensor = ONCE.replace("[%r9], %rd3,", "[%r9], [%r9+16],")
    after = tensor + wait(8200) + READ
    assert report(f"{store}tcgen05.wait::st.sync.aligned;\n{meet}{after}").verdict == "proved"
    late = tensor + wait(8200) + "tcgen05.wait::st.sync.aligned;\n" + READ
    wrong = report(store + meet + late)
    assert wrong.rules == {"tcgen05-order"}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("%r60, %p4", "%r2, %p4", "the instruction descriptor is not a constant"),
        ("kind::f16", "kind::f5", "of this kind"),
        (".x8.b32", ".x16.b32", "16 registers"),
        ("kind::f16", "kind::f16.ashift", ".ashift is not modelled"),
        (".x8.b32", ".x8.spcompress.b32", ".spcompress is not modelled"),
    ],
)
def test_what_is_not_read_says_so_with_its_line(old: str, new: str, says: str) -> None:
    with pytest.raises(Unsupported, match=rf"k\.ptx:\d+.*({says})"):
        report((ONCE + wait(8200) + READ).replace(old, new))


def test_a_base_offset_is_of_swizzles() -> None:
    """Triton sets it for scale factors, which have no swizzle."""
    assert report(ONCE + wait(8200) + READ, descriptor=DESCRIPTOR | 4 << 49).verdict == "proved"
    with pytest.raises(Unsupported, match="base offset"):
        report(ONCE, descriptor=DESCRIPTOR | 4 << 49 | 2 << 61)


def test_descriptors_of_other_layouts() -> None:
    with pytest.raises(Unsupported, match="swizzle mode"):
        report(ONCE, descriptor=DESCRIPTOR | 1 << 61)
    with pytest.raises(Unsupported, match="is an address"):
        report(ONCE, descriptor=DESCRIPTOR | 1 << 52)


def test_a_size_that_no_product_has() -> None:
    with pytest.raises(Unsupported, match=r"N = 256 is not|rows"):
        report(ONCE, form=FORM & ~(0x1F << 24) | 3 << 24)


#: 2:4 of A; B in four blocks of 16 bytes along K
SPARSE = "tcgen05.mma.sp.cta_group::1.kind::{kind} [%r9], %rd3, %rd3, [%r9+{at}], %r60, %p4;"
WIDE = 1 << 46 | (512 >> 4) << 32 | (128 >> 4) << 16
ZEROED = (
    "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8+16], {0,0,0,0,0,0,0,0};\n"
    "tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0; "
    "tcgen05.fence::after_thread_sync;\n"
)


@pytest.mark.parametrize(
    ("bits", "kind", "at", "says"),
    [
        (4, "f16", 16, "proved"), (5, "f16", 16, "proved"), (4, "f8f6f4", 16, "proved"),
        (4, "f16", 17, "out-of-bounds"), (5, "f16", 17, "out-of-bounds"),
        (4, "f8f6f4", 17, "out-of-bounds"),
        (0, "f16", 16, "does not agree with .sp"), (6, "f16", 16, "a sparsity selector of 2"),
        (5, "f8f6f4", 16, "a sparsity selector of 1"),
    ],
)  # fmt: skip
def test_where_metadata_is_says_the_descriptor(bits: int, kind: str, at: int, says: str) -> None:
    """In one column of a pair that the selector picks, or in both (PTX 9.7.16.10.8.4)."""
    sparse = SPARSE.format(kind=kind, at=at)
    product = re.sub(r"tcgen05\.mma[^;]*;", lambda _: sparse, ONCE)
    body = ZEROED + product + wait(8200) + READ
    if " " in says:
        with pytest.raises(Unsupported, match=says):
            report(body, form=FORM | bits, descriptor=WIDE)
        return
    found = report(body, form=FORM | bits, descriptor=WIDE)
    assert says in {found.verdict, *found.rules}


@pytest.mark.parametrize("bit", [2, 3, 6, 23, 29])
def test_a_descriptor_with_bits_that_its_instruction_has_not(bit: int) -> None:
    """A sparse A of a dense product, saturation of floats, and what is reserved (G14)."""
    body = ONCE + wait(8200) + READ
    assert report(body, form=FORM | 1 << 13 | 1 << 14).verdict == "proved"  # A and B are negated
    with pytest.raises(Unsupported, match="its instruction descriptor"):
        report(body, form=FORM | 1 << bit)


def test_an_operand_that_is_not_in_the_collector() -> None:
    """To leave it there is nothing that anything depends on, to take it from there is."""
    body = ONCE + wait(8200) + READ
    for operation in ("fill", "discard"):
        kept = body.replace("kind::f16", f"kind::f16.collector::a::{operation}")
        assert report(kept).verdict == "proved"
    for operation in ("use", "lastuse"):
        with pytest.raises(Unsupported, match=f"collector::a::{operation} is not modelled"):
            report(body.replace("kind::f16", f"kind::f16.collector::a::{operation}"))


SCALES = (
    "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8+16], {%r2,%r2,%r2,%r2,%r2,%r2,%r2,%r2}; "
    "tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0; "
    "tcgen05.fence::after_thread_sync;\n"
)


def scaled(bits: int, *, types: int = 1 << 23) -> Report:
    """A product with scales whose descriptor has these bits from an address of tensor memory."""
    form = types | (8 >> 3) << 17 | 1 << 27
    chosen = f"shr.u32 %r61, %r9, 1; and.b32 %r62, %r61, {bits}; or.b32 %r63, %r62, %r60;\n"
    product = ONCE.replace("kind::f16", "kind::mxf8f6f4.block_scale.scale_vec::1X")
    product = product.replace("%r60, %p4", "%r63, [%r9+16], [%r9+20], %p4")
    return report(SCALES + chosen + product + wait(8200) + READ, form=form)


def test_which_bytes_scales_are_in_need_not_be_known() -> None:
    """CuTe DSL puts the upper bits of their addresses into the descriptor."""
    assert scaled(3 << 29 | 3 << 4).verdict == "proved"
    with pytest.raises(Unsupported, match="the instruction descriptor is not a constant"):
        scaled(3 << 29 | 1 << 18)
    with pytest.raises(Unsupported, match="scale factors of ue4m3"):
        scaled(3 << 29 | 3 << 4, types=0)


SHIFT = (
    SCALES.replace("+16", "")
    + "@!%p2 bra ISSUED;\ntcgen05.shift.cta_group::1.down [%r9];\nCOMMIT\n"
    + "ISSUED: bar.warp.sync -1;\n"
)


def test_rows_that_are_shifted_are_read_when_the_shift_is_complete() -> None:
    commit = MULTIPLY.split("; ", 1)[1].strip()
    right = report(SHIFT.replace("COMMIT", commit) + wait(8200) + READ)
    assert right.verdict == "proved"
    FOUND[0] = SHIFT.replace("COMMIT", "") + READ
    wrong = report(FOUND[0])
    assert wrong.rules == {"tcgen05-order", "tmem-lifetime"}
    assert lines(wrong) == [LOAD.strip(), "tcgen05.shift.cta_group::1.down [%r9];"]


# ---------------------------------------------------------------------- launch control

ASK = (
    "@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r1+8200], 16;\n"
    "@%p2 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
    "[%r1+8224], [%r1+8200];\n"
)
ANSWER = (
    "ld.shared.b128 %q1, [%r1+8224];\n"
    "mov.b128 {%rd10, %rd11}, %q1; mov.b128 %q2, {%rd10, %rd11};\n"
    "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p7, %q2;\n"
    "@{no}%p7 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r30, %r31, _, _}, "
    "%q2;\n"
)


def asked(body: str) -> Report:
    """A kernel without tensor memory, which has an mbarrier at 8200."""
    start = (
        "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p2, %r2, 0;\n"
        "@%p2 mbarrier.init.shared::cta.b64 [%r1+8200], 1; bar.sync 0;\n"
    )
    module = read(f"{HEAD}{start}{body}ret;\n}}\n", "k.ptx")
    return check(
        lower(module, module.entries[0], Launch("k", (1, 1, 1), (32, 1, 1), (1, 1, 1), 9000))
    )


WAIT = (
    "W: mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r1+8200], 0; @!%p6 bra W; "
    "bar.warp.sync -1;\n"
)


def test_an_answer_is_read_from_a_register_of_128_bits() -> None:
    """The only cluster asks for another one: there is none."""
    answer = ANSWER.replace("{no}", "")
    assert asked(ASK + WAIT + answer).verdict == "proved"
    blind = asked(ASK + WAIT + ANSWER.replace("{no}", "!"))
    assert blind.rules == {"launch-control"}
    assert [p.loc.line - FIRST for p in blind.findings[0].participants] == [8]
    early = asked(ASK + answer + WAIT)
    assert "race" in early.rules
    race = next(f for f in early.findings if f.rule == "race")
    assert sorted(p.loc.line - FIRST for p in race.participants) == [3, 4]


def test_an_answer_is_computed_of_registers() -> None:
    """Whatever stands first in the code, an addition or the load."""
    moved = "{%rd10, %rd11}, %q1; add.u64 %rd10, %rd10, 0; xor.b64 %rd11, %rd11, 0;"
    answer = ANSWER.replace("{%rd10, %rd11}, %q1;", moved)
    assert asked(ASK + WAIT + answer.replace("{no}", "")).verdict == "proved"
    assert asked(ASK + WAIT + answer.replace("{no}", "!")).rules == {"launch-control"}


@pytest.mark.parametrize("unless", ["", "!"])
def test_a_register_that_nothing_was_loaded_into_answers_no_request(unless: str) -> None:
    """What goes wrong is the load, and no failure is seen: the query of it is not at fault."""
    answer = ANSWER.replace("{no}", unless)
    early = asked(answer + ASK + WAIT)
    assert early.rules == {"race"}
    assert sorted(p.loc.line - FIRST for p in early.findings[0].participants) == [2, 7]
    never = asked(answer)
    assert never.rules == {"uninitialised-read"}
    assert [p.loc.line - FIRST for p in never.findings[0].participants] == [2]
    elsewhere = asked(ASK + WAIT + answer.replace("8224", "8240"))
    assert elsewhere.rules == {"uninitialised-read"}
    moved = answer.replace("%q2;\nclusterlaunch", "{%rd10, %rd11};\nclusterlaunch")
    assert asked(f"add.u64 %rd11, %rd11, 0;\n{moved}").rules == {"uninitialised-read"}


ATOM = (7).to_bytes(4, "little") + FORM.to_bytes(4, "little")


@pytest.mark.parametrize(
    ("declared", "loaded", "known", "unknown"),
    [
        (".align 4 .b8 x[8]", "[x+4]", Struct("x", 8, (), ATOM), Struct("x", 8, (), ATOM[:4])),
        (".u32 x", "[x]", Scalar("x", "u32", FORM), Scalar("x", "u32", None)),
    ],
)
def test_an_instruction_descriptor_may_be_a_parameter(
    declared: str, loaded: str, known: Parameter, unknown: Parameter
) -> None:
    """CUTLASS puts it into a struct; where the launch says it, it is known."""
    head = HEAD.replace(".entry k()", f".entry k(.param {declared})")
    start = START.replace("{descriptor}", str(DESCRIPTOR))
    start = start.replace("mov.u32 %r60, {form};", f"ld.param.u32 %r60, {loaded};")
    module = read(head + start + ONCE + wait(8200) + READ + FREE, "k.ptx")
    launch = Launch("k", (1, 1, 1), (128, 1, 1), (1, 1, 1), 16384, params=(known,))
    assert check(lower(module, module.entries[0], launch)).verdict == "proved"
    with pytest.raises(Unsupported, match="the instruction descriptor is not a constant"):
        lower(module, module.entries[0], replace(launch, params=(unknown,)))


def test_bytes_of_a_parameter_choose_the_descriptor() -> None:
    """CuTe's kernels take the bits of their atom from it, and the mask of lanes as four words."""
    other = FORM & ~(0x1F << 24) | 3 << 24
    choose = (
        "ld.param.v2.b8 {%h0, %h1}, [x+1]; and.b16 %h2, %h1, 1; setp.ne.b16 %p7, %h2, 0; "
        f"selp.b32 %r60, {FORM}, {other}, %p7; ld.param.v4.b32 {{%r61, %r62, %r63, %r64}}, [x+8]; "
        "mov.b64 %rd20, {%r61, %r62}; mov.b64 {%r65, %r66}, %rd20;"
    )
    head = HEAD.replace(".entry k()", ".entry k(.param .align 8 .b8 x[24])")
    start = START.replace("{descriptor}", str(DESCRIPTOR)).replace("mov.u32 %r60, {form};", choose)
    product = ONCE.replace("%p4", "{%r65, %r66, %r63, %r64}, %p4")
    code = f".reg .b16 %h<3>; {start}{product}{wait(8200)}{READ}{FREE}"
    module = read(head + code, "k.ptx")
    atom = Struct("x", 24, (), bytes([0, 0, 1]).ljust(24, b"\0"))
    launch = Launch("k", (1, 1, 1), (128, 1, 1), (1, 1, 1), 16384, params=(atom,))
    assert check(lower(module, module.entries[0], launch)).verdict == "proved"
    with pytest.raises(Unsupported, match="rows"):
        lower(module, module.entries[0], replace(launch, params=(replace(atom, data=bytes(24)),)))


def test_registers_without_a_response_are_told_as_such() -> None:
    """Zeros say no request has failed: there was none."""
    assert asked(ASK + WAIT + ANSWER.replace("{no}", "")).verdict == "proved"
    decodes = ANSWER.replace("{no}", "!")
    asks_nobody = "mov.b64 %rd10, 0; mov.b64 %rd11, 0;\n" + decodes[decodes.index("mov.b128 %q2") :]
    (finding,) = asked(ASK + WAIT + asks_nobody).findings
    assert finding.rule == "launch-control"
    assert finding.message.endswith("on registers into which no response has been loaded (D19)")
    assert finding.fix.startswith("load the 16 bytes of the response into them")
    (failed,) = asked(ASK + WAIT + decodes).findings
    assert failed.rule == "launch-control"
    assert failed.message.endswith("on the response of a request that failed (D19)")
    assert failed.fix == "ask is_canceled first, and decode no response of which it is false"


def test_a_response_that_nobody_waits_for_has_a_cause() -> None:
    finding = asked(ASK + ANSWER.replace("{no}", "")).findings[0]
    assert (finding.rule, finding.diagnosis) == ("race", "own_copy")
    assert finding.cause.startswith("no warp waits on smem+8200, on which clusterlaunchcontrol")
    assert finding.fix == "wait on smem+8200 before this ld.v"
