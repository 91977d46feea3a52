"""Vectors of narrow elements, strong ones and remote ones: they are accessed element by element."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import HEAD, INIT, WAIT, lines, report
from tilesim.checker import Report, check
from tilesim.errors import InvalidProgram
from tilesim.ptx.launch import Contents, Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

START = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r4, %r2, 3; add.s32 %r5, %r1, %r4;\n"
    "mov.b32 %r6, 0x04030201; mov.b32 %r7, 0x08070605; st.shared.v2.b32 [%r5], {%r6, %r7};\n"
)


@pytest.mark.parametrize(
    ("text", "size", "beyond"),
    [
        ("st.relaxed.cta.shared.v2.b32 [%r5+AT], {%r6, %r7};", 8, 4),
        ("ld.acquire.cta.shared.v2.b32 {_, %r6}, [%r5+AT];", 8, 4),
        ("ld.shared.v4.u8 {%r3, _, _, _}, [%r5+AT];", 4, 2),
        ("st.shared.v2.u16 [%r5+AT], {%r2, %r2};", 4, 2),
        ("red.shared.add.noftz.f16x2 [%r5+AT], %r6;", 4, 2),
        ("mov.f32 %f1, 0f3F800000; red.global.add.v2.f32 [%rd1+AT], {%f1, %f1};", 8, 4),
    ],
)
def test_a_vector_begins_at_a_multiple_of_its_size(text: str, size: int, beyond: int) -> None:
    """Also where it is accessed element by element, each at a multiple of its own size (H15)."""
    place = "ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r2, 8; add.u64 %rd1, %rd1, %rd2;\n"
    last = "setp.eq.u32 %p1, %r2, 31;\n@%p1 ret;\n"

    def at(offset: int) -> Report:
        body = f"{START}{place}{last}{text.replace('AT', str(offset))}"
        return report(body, params=(".param .u64 x",), values=(Pointer("x", 272),))

    assert at(0).findings == ()
    wrong = at(beyond)
    assert wrong.rules == {"out-of-bounds"}
    assert f"their address must be a multiple of {size} (H15)" in wrong.findings[0].message
    assert lines(wrong) == [5]


MESSAGE = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; mov.u32 %r4, 1;\n"
    "setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r2, 32;\n"
    "@%p1 mbarrier.init.shared::cta.b64 [%r1], %r4;\n"
    "@%p1 st.shared.v4.b32 [%r1+64], {0, 0, 0, 0}; bar.sync 0;\n"
    "@%p1 st.shared.b32 [%r1+WRITTEN], 7;\n@%p1 STORE;\n"
    "@%p1 mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r1];\n"
    "WAIT: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p3, [%r1], 0;\n"
    "@!%p3 bra WAIT;\n@%p2 LOAD;\n@%p2 ld.shared.b32 %r8, [%r1+READ];"
)


def message(store: str, load: str, written: int, read: int) -> Report:
    """A word that one thread writes and another one reads, both by way of flags at byte 64."""
    text = MESSAGE.replace("STORE", store).replace("LOAD", load)
    return report(text.replace("WRITTEN", str(written)).replace("READ", str(read)), warps=2)


RELEASE = "st.release.cta.shared.v2.b32 [%r1+64], {1, 1}"
ACQUIRE = "ld.acquire.cta.shared.v4.b32 {_, %r6, _, %r7}, [%r1+64]"


@pytest.mark.parametrize(
    ("store", "load", "read", "races"),
    [
        (RELEASE, "ld.acquire.cta.shared.b32 %r6, [%r1+68]", 80, False),
        (RELEASE, "ld.acquire.cta.shared.b32 %r6, [%r1+64]", 64, False),
        (RELEASE, "ld.acquire.cta.shared.b32 %r6, [%r1+64]", 68, True),
        (RELEASE, "ld.acquire.cta.shared.b32 %r6, [%r1+68]", 64, True),
        ("st.release.cta.shared.b32 [%r1+68], 1", ACQUIRE, 80, False),
        ("st.release.cta.shared.b32 [%r1+72], 1", ACQUIRE, 80, True),
    ],
)
def test_no_element_that_acquires_or_releases_orders_another(
    store: str, load: str, read: int, *, races: bool
) -> None:
    found = message(store, load, 80, read)
    assert (found.rules == {"race"}) == races, found.findings
    assert races or found.verdict in ("bounded", "exhausted")


REMOTE = (
    "mov.u32 %r1, smem; mov.u32 %r2, 1; elect.sync _|%p0, -1; mov.u32 %r9, %cluster_ctarank;\n"
    "@%p0 mbarrier.init.shared::cta.b64 [%r1], %r2;\n"
    "@%p0 fence.mbarrier_init.release.cluster;\n"
    "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], BYTES;\n"
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; xor.b32 %r3, %r9, 1;\n"
    "mapa.shared::cluster.u32 %r4, %r1, %r3; add.s32 %r5, %r4, 64;\n"
    "getctarank.shared::cluster.u32 %r6, %r5; setp.ne.u32 %p2, %r6, %r3;\n@%p2 trap;\n"
    "@%p0 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r5], "
    "{%r1, %r2, %r3, %r4}, [%r4];\n" + WAIT + "ld.shared.b32 %r7, [%r1+76];\n"
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
)


def test_a_remote_vector_completes_all_its_bytes() -> None:
    assert report(REMOTE.replace("BYTES", "16"), grid=2, cluster=2).verdict == "proved"
    wrong = report(REMOTE.replace("BYTES", "20"), grid=2, cluster=2)
    assert wrong.rules == {"deadlock"}
    assert report(REMOTE.replace("BYTES", "12"), grid=2, cluster=2).verdict == "failed"


def test_carries_are_not_followed() -> None:
    body = "mov.u32 %r1, 1; add.cc.u32 %r2, %r1, %r1; addc.u32 %r3, %r1, 0;\n"
    assert report(body).verdict == "proved"
    steers = report(f"{body}setp.eq.u32 %p1, %r3, 1;\n@%p1 bra DONE;\nbar.sync 0;\nDONE:")
    assert steers.verdict == "bounded"
    assert "addc.u32" in steers.reasons[0]


@pytest.mark.parametrize(("right", "rules"), [(8, set()), (7, {"out-of-bounds"})])
def test_a_copy_may_ignore_bytes_beyond_the_end_of_a_buffer(right: int, rules: set[str]) -> None:
    """16 bytes at byte 32 of a buffer of 40."""
    body = (
        f"{INIT}ld.param.u64 %rd1, [a]; cvta.to.global.u64 %rd2, %rd1;\n"
        "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;\n"
        "@%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob "
        f"[%r1+64], [%rd2+32], 16, 0, {right}, [%r1];\n{WAIT}"
        "ld.shared.v2.b32 {%r5, %r6}, [%r1+64];"
    )
    found = report(body, params=(".param .u64 a",), values=(Pointer("a", 40),))
    assert found.rules == rules
    assert found.verdict == ("failed" if rules else "proved")
    assert not rules or lines(found) == [5]


def blackwell(body: str) -> Report:
    """A kernel with one buffer of 1 KiB."""
    text = f"{HEAD.format(params='.param .u64 x')}{body}\nret;\n}}\n"
    module = read(text.replace("sm_90a", "sm_100a"), "k.ptx")
    buffers = (Pointer("x", 1024),)
    launch = Launch("k", (1, 1, 1), (32, 1, 1), (1, 1, 1), 4096, params=buffers)
    return check(lower(module, module.entries[0], launch))


def test_a_vector_of_32_bytes_lies_in_global_memory() -> None:
    """Each lane stores its own; a multiple of 16 is no place for one."""
    registers = "{%r2, %r2, %r2, %r2, %r2, %r2, %r2, %r2}"
    start = "ld.param.u64 %rd1, [x]; mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, STRIDE;\n"
    body = f"{start}add.s64 %rd3, %rd1, %rd2; st.global.v8.b32 [%rd3], {registers};\n"
    assert blackwell(body.replace("STRIDE", "32")).verdict == "proved"
    wrong = blackwell(body.replace("STRIDE", "16"))
    assert wrong.rules == {"out-of-bounds"}
    assert lines(wrong) == [1]
    with pytest.raises(InvalidProgram, match="a vector of 32 bytes lies in global memory"):
        blackwell(f"mov.u32 %r1, smem; st.shared.v8.b32 [%r1], {registers};")


#: the first lane of warp 0 stores 128 bits, that of warp 1 comes in no order with it
PAIR = (
    ".reg .b128 %q<4>;\n"
    "ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; setp.ne.u32 %p2, %r2, 0;\n"
    "mov.b64 %rd5, 7; mov.b128 %q0, {%rd5, %rd5}; setp.ge.u32 %p1, %r1, 32;\n@%p2 ret;\n"
    "@%p1 bra LATER;\nst.relaxed.gpu.global.b128 [%rd1], %q0;\nret;\n"
    "LATER: OTHER\n"
)


#: what accesses a half of it, or both one by one; and what accesses all of it
HALVES = (
    "st.relaxed.gpu.global.b64 [%rd1+8], %rd5;",
    "ld.relaxed.gpu.global.b64 %rd6, [%rd1];",
    "ld.acquire.gpu.global.v2.b64 {%rd6, %rd7}, [%rd1];",
    "atom.relaxed.gpu.global.add.u64 %rd6, [%rd1+8], %rd5;",
)
WHOLES = ("st.relaxed.gpu.global.b128 [%rd1], %q0;", "ld.acquire.gpu.global.b128 %q1, [%rd1];")


@pytest.mark.parametrize("other", HALVES)
def test_strong_halves_of_128_bits_are_no_elements_of_64(other: str) -> None:
    """128 bits are one access: one of 64 does not access the same bytes (H2)."""
    wrong = report(
        PAIR.replace("OTHER", other), warps=2, params=(".param .u64 x",),
        values=(Pointer("x", 16, contents=Contents("u64", (0, 0))),),
    )  # fmt: skip
    assert wrong.rules == {"race"}
    assert lines(wrong) == [5, 7]


@pytest.mark.parametrize("other", WHOLES)
def test_strong_accesses_of_128_bits_are_one_element(other: str) -> None:
    right = report(
        PAIR.replace("OTHER", other), warps=2, params=(".param .u64 x",),
        values=(Pointer("x", 16, contents=Contents("u64", (0, 0))),),
    )  # fmt: skip
    assert right.findings == ()


#: a flag in the upper half says that the lower one has been stored; if it has not, there is a race
FLAGGED = (
    ".reg .b128 %q<4>;\n"
    "ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; setp.ne.u32 %p2, %r2, 0;\n"
    "mov.b64 %rd5, 7; mov.b64 %rd6, 3; setp.ge.u32 %p1, %r1, 32;\n@%p2 ret;\n@%p1 bra LATER;\n"
    "{store}\nret;\n"
    "LATER: {load}\nsetp.eq.u64 %p4, %rd8, 0;\n@%p4 bra LATER;\n"
    "setp.ne.u64 %p5, %rd7, 3; @%p5 st.global.u64 [%rd1], 1;\n"
)


def flagged(store: str, load: str) -> Report:
    text = FLAGGED.replace("{store}", store).replace("{load}", load)
    buffer = Pointer("x", 16, contents=Contents("u64", (0, 0)))
    return report(text, warps=2, params=(".param .u64 x",), values=(buffer,))


@pytest.mark.parametrize(("stores", "loads"), [("relaxed", "relaxed"), ("release", "acquire")])
def test_nobody_comes_between_the_halves_of_128_bits(stores: str, loads: str) -> None:
    whole = flagged(
        f"mov.b128 %q0, {{%rd6, %rd5}}; st.{stores}.gpu.global.b128 [%rd1], %q0;",
        f"ld.{loads}.gpu.global.b128 %q1, [%rd1]; mov.b128 {{%rd7, %rd8}}, %q1;",
    )
    assert whole.verdict == "exhausted", (whole.findings, whole.reasons)
    pieces = flagged(
        f"st.{stores}.gpu.global.v2.b64 [%rd1], {{%rd6, %rd5}};",
        f"ld.{loads}.gpu.global.v2.b64 {{%rd7, %rd8}}, [%rd1];",
    )
    assert pieces.rules == {"race"}
