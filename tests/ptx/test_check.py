"""Small kernels in PTX: verdict, rule and lines, a wrong one beside its right twin."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesim.checker import Report, check
from tilesim.checker.witness import retrace
from tilesim.errors import TilesimError
from tilesim.ir.mir import Mir
from tilesim.ir.program import Strict
from tilesim.loader import load
from tilesim.ptx.launch import Contents, Launch, Map, Parameter, Pointer, Scalar
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import Function, LaunchError, Module, PtxError, Unsupported

HEAD = (
    ".version 9.4\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 smem[];\n"
    ".visible .entry k({params})\n{{\n.reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<40>; "
    ".reg .f32 %f<9>;\n"
)
Lowering: TypeAlias = Callable[[Module, Function, Launch], Mir]
#: the line of the first line of a body
FIRST = 8
INIT = (
    "mov.u32 %r1, smem; mov.u32 %r2, 1; elect.sync _|%p0, -1;\n"
    "@%p0 mbarrier.init.shared::cta.b64 [%r1], %r2;\nbar.warp.sync -1;\n"
)
WAIT = "L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n@!%p1 bra L;\n"
ARRIVE = "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];\n"


def program(
    body: str, *, warps: int = 1, grid: int = 1, params: tuple[str, ...] = (),
    values: tuple[Parameter, ...] = (), cluster: int = 1, by: Lowering = lower,
) -> Mir:  # fmt: skip
    text = f"{HEAD.format(params=', '.join(params))}{body}\nret;\n}}\n"
    module = read(text, "k.ptx")
    launch = Launch("k", (grid, 1, 1), (32 * warps, 1, 1), (cluster, 1, 1), 4096, params=values)
    return by(module, module.entries[0], launch)


def report(
    body: str, *, warps: int = 1, grid: int = 1, params: tuple[str, ...] = (),
    values: tuple[Parameter, ...] = (), cluster: int = 1, strict: Strict = "practice",
) -> Report:  # fmt: skip
    loaded = program(body, warps=warps, grid=grid, params=params, values=values, cluster=cluster)
    return check(loaded, strict=strict)


def lines(found: Report) -> list[int]:
    """Lines of the first finding's participants, counted from the first line of the body."""
    return sorted({p.loc.line - FIRST for p in found.findings[0].participants})


@pytest.mark.parametrize(("parity", "odd"), [(2, False), (3, True), (0xFFFFFFFF, True)])
def test_a_parity_counts_by_its_last_bit_in_practice(parity: int, odd: bool) -> None:
    """As an H100 has it: Triton's warp-specialised kernels wait for 0 and -1 (A21)."""
    place = f"mov.u32 %r9, %ctaid.x; add.u32 %r9, %r9, {parity};\n"
    wait = place + WAIT.replace(", 0;", ", %r9;")
    right = report(INIT + ("" if odd else ARRIVE) + wait)
    assert right.verdict == "proved"
    assert "A21" in {leaning.name for leaning in right.leanings}
    if not odd:
        assert report(INIT + wait).rules == {"deadlock"}
    wrong = report(INIT + ARRIVE + wait, strict="ptx")
    assert wrong.rules == {"phase-alias"}
    assert lines(wrong) == [5]


def test_a_loop_that_counts_its_turns_is_no_plain_wait() -> None:
    """How often the wait fails, nobody knows: what depends on it is not proved."""
    other = "mov.u32 %r5, %tid.x; setp.ge.u32 %p3, %r5, 32;\n@%p3 bra ARRIVE;\n"
    again = WAIT.replace("L", "AGAIN").replace(", 0;", ", 1;")
    rest = f"setp.le.u32 %p2, %r7, 1;\n@%p2 ret;\n{again}ret;\nARRIVE: {ARRIVE}"
    start = f"mov.u32 %r7, 0;{INIT.replace('@%p0', '@%p4')}".replace(
        "elect.sync _|%p0, -1;",
        "elect.sync _|%p0, -1; mov.u32 %r6, %tid.x; setp.eq.u32 %p4, %r6, 0;",
    )
    counting = WAIT.replace("L: ", "L: add.u32 %r7, %r7, 1; ")
    assert report(f"{start}bar.sync 0;\n{other}{counting}{rest}", warps=2).verdict != "proved"
    plain = rest.replace("%r7", "%r8")
    right = f"mov.u32 %r8, 0;{start}bar.sync 0;\n{other}{WAIT}{plain}"
    assert report(right, warps=2).verdict == "proved"


@pytest.mark.parametrize("opcode", ["bfe.u32 %r6, %r5, 0, 8", "prmt.b32 %r6, %r5, 0, 0x4440",
                                    "and.b32 %r6, %r5, 255", "shl.b32 %r6, %r5, 0"])  # fmt: skip
def test_one_cta_of_many_that_hangs_is_found_whatever_computes_its_number(opcode: str) -> None:
    body = f"mov.u32 %r5, %ctaid.x; {opcode}; setp.ne.u32 %p2, %r6, {{n}};\n@%p2 ret;\n{INIT}{WAIT}"
    wrong = report(body.format(n=77), grid=200)
    assert wrong.verdict == "failed"
    assert wrong.rules == {"deadlock"}
    assert report(body.format(n=999), grid=200).verdict == "proved"


@pytest.mark.parametrize(
    ("value", "way"),
    [
        ("fma.rn.f32 %f2, %f1, %f1, %f1", "mov.f32 %f3, %f2"),
        ("ex2.approx.f32 %f2, %f1", "mov.f32 %f3, %f2"),
        (
            "fma.rn.f32 %f2, %f1, %f1, %f1",
            "mov.u32 %r9, smem; mov.u32 %r8, %tid.x; shl.b32 %r8, %r8, 2; add.s32 %r9, %r9, %r8; "
            "st.shared.f32 [%r9+64], %f2; ld.shared.f32 %f3, [%r9+64]",
        ),
    ],
)
def test_data_that_decides_leaves_the_verdict_open(value: str, way: str) -> None:
    start = f"mov.f32 %f1, 0f3F800000; {value};\n{way};\nsetp.eq.f32 %p2, %f3, 0f00000000;\n"
    steers = report(f"{start}@%p2 bra DONE;\nbar.sync 0;\nDONE:")
    assert steers.verdict == "bounded"
    assert value.split()[0] in steers.reasons[0]
    assert f"k.ptx:{FIRST}" in steers.reasons[0]
    harmless = (
        start + "mov.u32 %r11, %tid.x; shl.b32 %r11, %r11, 2; mov.u32 %r12, smem;"
        "add.s32 %r12, %r12, %r11; selp.b32 %r8, 1, 2, %p2; st.shared.u32 [%r12+512], %r8;"
    )
    assert report(harmless).verdict == "proved"


def test_a_register_that_nothing_sets_is_known_to_nobody() -> None:
    """Compilers pack one where half of a register does not matter."""
    packed = ".reg .b16 %h<3>;\nmov.u32 %r2, 7; cvt.u16.u32 %h1, %r2; mov.b32 %r3, {%h1, %h2};\n"
    assert report(packed + INIT + ARRIVE + WAIT).verdict == "proved"
    steered = report(f"{packed}setp.eq.u32 %p1, %r3, 7;\n@!%p1 bra OUT;\n{INIT}{WAIT}OUT:\n")
    assert steered.verdict == "bounded"
    assert any("%h2, which no instruction sets" in reason for reason in steered.reasons)


def test_a_part_that_nobody_takes_out_again_does_not_matter() -> None:
    """LLVM keeps two numbers in one register, or one number and nothing."""
    half = "mov.u32 %r2, 7; mov.b64 %rd1, {%r2, %r9};\n"
    branch = f"setp.eq.u32 %p1, %r3, 7;\n@!%p1 bra OUT;\n{INIT}{ARRIVE}{WAIT}OUT:\n"
    assert report(f"{half}mov.b64 {{%r3, _}}, %rd1;\n{branch}").verdict == "proved"
    for takes in ("mov.b64 {_, %r3}, %rd1;", "mov.b64 {%r3, %r4}, %rd1; add.u32 %r3, %r3, %r4;"):
        taken = report(f"{half}{takes}\n{branch}")
        assert taken.verdict == "bounded"
        assert any("%r9, which no instruction sets" in reason for reason in taken.reasons)


def test_known_numbers_decide_although_they_are_floats() -> None:
    body = (
        "ld.param.f32 %f1, [alpha]; setp.neu.f32 %p2, %f1, 0f00000000;\n@%p2 ret;\n" + INIT + WAIT
    )
    params = (".param .f32 alpha",)
    assert report(body, params=params, values=(Scalar("alpha", "f32", 0.5),)).verdict == "proved"
    wrong = report(body, params=params, values=(Scalar("alpha", "f32", 0.0),))
    assert wrong.rules == {"deadlock"}


@pytest.mark.parametrize(("kind", "deadlock"), [("s8", False), ("u8", True)])
def test_a_narrow_parameter_fills_its_register_with_its_sign(kind: str, deadlock: bool) -> None:
    body = (
        f"ld.param.{kind} %r5, [n]; setp.lt.s32 %p2, %r5, 0;\n@!%p2 bra WAITS;\nret;\nWAITS:\n"
        + INIT + WAIT
    )  # fmt: skip
    found = report(body, params=(".param .u8 n",), values=(Scalar("n", "s8", -1),))
    assert found.rules == ({"deadlock"} if deadlock else set())


def test_contents_of_buffers_that_steer_are_named() -> None:
    body = (
        "ld.param.u64 %rd1, [a]; mov.u32 %r4, %tid.x; mul.wide.u32 %rd2, %r4, 4;\n"
        "add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r5, [%rd3]; setp.eq.u32 %p2, %r5, 0;"
    )
    found = report(
        f"{body}\n@%p2 bra DONE;\nbar.sync 0;\nDONE:",
        params=(".param .u64 a",),
        values=(Pointer("a", 128),),
    )
    assert found.verdict == "bounded"
    assert "contents of a" in found.reasons[0]


def test_an_index_decides_where_lanes_go_on() -> None:
    body = (
        "mov.u32 %r5, %ctaid.x;\nbrx.idx %r5, ts;\nts: .branchtargets A, B;\n"
        f"A: ret;\nB: {INIT}{WAIT}"
    )
    assert report(body, grid=2).rules == {"deadlock"}
    assert report(body, grid=1).verdict == "proved"


@pytest.mark.parametrize("odd", [False, True])
def test_one_cta_of_a_large_grid_goes_on_elsewhere(odd: bool) -> None:
    """No CTA stands for one that an index sends to another target."""
    body = (
        f"mov.u32 %r5, %ctaid.x; setp.eq.u32 %p3, %r5, {37 if odd else 200};\n"
        "selp.u32 %r5, 1, 0, %p3;\nbrx.idx %r5, ts;\nts: .branchtargets A, B;\n"
        f"A: ret;\nB: {INIT}{WAIT}"
    )
    found = report(body, grid=100)
    assert found.verdict == ("failed" if odd else "proved")
    assert found.rules == ({"deadlock"} if odd else set())


TILE = Map("a", "f32", (64, 64), (256,), (32, 8))
LOAD = (
    "mov.u64 %rd1, a; cvta.param.u64 %rd2, %rd1; add.s32 %r8, %r1, 1024; mov.u32 %r7, 0;\n"
    "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {nbytes};\n"
    "@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], "
    "[%rd2, {{%r7, %r7}}], [%r1];\n"
)


def test_a_tensor_copy_completes_the_bytes_of_the_map() -> None:
    params = (".param .align 64 .b8 a[128]",)
    right = report(INIT + LOAD.format(nbytes=1024) + WAIT, params=params, values=(TILE,))
    assert right.verdict == "proved"
    wrong = report(INIT + LOAD.format(nbytes=2048) + WAIT, params=params, values=(TILE,))
    assert wrong.verdict == "failed"
    assert wrong.rules == {"deadlock"}


@pytest.mark.parametrize("nbytes", [1024, 2048])
def test_the_group_of_ctas_of_a_copy_may_stand_before_the_state_spaces(nbytes: int) -> None:
    load = LOAD.replace("2d.shared", "2d.cta_group::1.shared").format(nbytes=nbytes)
    found = report(INIT + load + WAIT, params=(".param .align 64 .b8 a[128]",), values=(TILE,))
    assert found.verdict == ("proved" if nbytes == 1024 else "failed")


@pytest.mark.parametrize(
    "body",
    ["vadd.s32.s32.s32 %r1, %r2, %r3;", "istypep.texref %p1, %rd1;", "mov.u32 %r1, %envreg3;",
     "vsub.s32.s32.s32 %r1, %r2, %r3;", "st.bulk.weak.shared::cta [%r1], 64, 0;",
     "mbarrier.init.frob.shared.b64 [%r1], 1;",
     "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1}, %rd1, %rd2;"],
)  # fmt: skip
def test_what_is_not_modelled_is_refused_with_its_line(body: str) -> None:
    with pytest.raises(Unsupported) as caught:
        report(f"mov.u32 %r1, %tid.x;\n{body}")
    assert caught.value.line == FIRST + 1


def test_the_launch_must_fit_the_kernel() -> None:
    module = read(
        f"{HEAD.format(params='.param .u32 n')}ret; }}".replace(")\n{", ")\n.reqntid 64\n{")
    )
    entry = module.entries[0]
    one = (Scalar("n", "u32", 1),)
    wrong = {
        "block: [32, 1, 1] contradicts .reqntid 64": Launch("k", (1, 1, 1), (32, 1, 1), params=one),
        "the kernel has 1 parameters, the description 0": Launch("k", (1, 1, 1), (64, 1, 1)),
        "parameter n has 4 bytes, the description gives 8": Launch(
            "k", (1, 1, 1), (64, 1, 1), params=(Pointer("n", 4),)
        ),
    }
    for message, launch in wrong.items():
        with pytest.raises(LaunchError) as caught:
            lower(module, entry, launch)
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("says", "block", "cluster", "wrong"),
    [
        ("", (1, 1, 64), 1, ""), ("", (1, 1, 65), 1, "k: block: 65 threads in z, at most 64"),
        (".maxclusterrank 2", (32, 1, 1), 2, ""),
        (".maxclusterrank 2", (32, 1, 1), 4, "k: cluster: 4 CTAs, .maxclusterrank allows 2"),
    ],
)  # fmt: skip
def test_launches_that_the_driver_refuses(
    says: str, block: tuple[int, int, int], cluster: int, wrong: str
) -> None:
    text = (
        f".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{says}\n{{ ret; }}"
    )
    module = read(text, "k.ptx")
    launch = Launch("k", (4, 1, 1), block, (cluster, 1, 1), 0)
    if not wrong:
        assert check(lower(module, module.entries[0], launch)).verdict == "proved"
        return
    with pytest.raises(LaunchError) as caught:
        lower(module, module.entries[0], launch)
    assert str(caught.value) == wrong


@pytest.mark.parametrize("align", [64, 128, 8, 32])
def test_a_tensor_map_begins_at_a_multiple_of_64_bytes(align: int) -> None:
    """By what the kernel declares: a parameter may lie at any other place (B16)."""
    params = (f".param .align {align} .b8 a[128]",)
    body = INIT + LOAD.format(nbytes=1024) + WAIT
    if align >= 64:
        assert report(body, params=params, values=(TILE,)).verdict == "proved"
        return
    with pytest.raises(Unsupported, match="a multiple of 64 bytes"):
        report(body, params=params, values=(TILE,))


#: a kernel of at most 64 threads and 40 registers, with dynamic shared memory and a map
LAUNCHED = """.version 8.4
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .align 64 .b8 m[128])
.maxntid 64
.maxnreg 40
{ .reg .b32 %r<2>; mov.u32 %r1, dynamic; st.shared.u32 [%r1], %r1; ret; }
"""
#: what is written in the description -> what is said of it
WRONG_FIELDS: dict[str, tuple[dict[str, object], str]] = {
    "threads": ({"block": [96]}, "k: block: 96 threads, .maxntid allows 64"),
    "registers": ({"registers": 41}, "k: registers: 41 per thread, .maxnreg allows 40"),
    "few registers": ({"registers": 3}, "k: 3 registers per thread is outside 8..256"),
    "no shared memory": (
        {"dynamic_shared": 0},
        "k: dynamic_shared: the kernel uses dynamic, and the launch gives it 0 bytes",
    ),
    "much shared memory": (
        {"dynamic_shared": 232449},
        "k: dynamic_shared: 232449 bytes, and 0 of the kernel's variables, are more than the 232448"
        " that a CTA of sm_90a can have",
    ),
    "grid": ({"grid": [1, 70000]}, "k: grid y = 70000 is outside 1..65535"),
    "too few": ({"params": []}, "k: params: the kernel has 1 parameters, the description 0"),
    "another": (
        {"params": [{"kind": "scalar", "type": "u32", "value": 1}]},
        "k: params[0]: parameter m has 128 bytes, the description gives 4",
    ),
    "rows": ({"strides": [24]}, "k: m.map: X has a stride of 24 bytes, not a multiple of 16 (B16)"),
    "box": ({"box": [7, 8]}, "k: m.map: the box's rows take 14 bytes, not a multiple of 16"),
    "size": ({"shape": [64, 1 << 32]}, "k: X takes 549755813888 bytes, at most 16 GiB"),
}  # fmt: skip


def described(change: Mapping[str, object]) -> dict[str, object]:
    """The launch of the kernel with other fields, of the description or of its map."""
    m: dict[str, object] = {
        "kind": "map", "name": "X", "type": "bf16", "shape": [64, 64], "strides": [128],
        "box": [64, 64],
    }  # fmt: skip
    launch = {"entry": "k", "grid": [1], "block": [32], "dynamic_shared": 64, "params": [m]}
    for name, value in change.items():
        (m if name in m else launch)[name] = value
    return launch


@pytest.mark.parametrize("name", WRONG_FIELDS)
def test_a_wrong_field_of_a_launch_is_named(tmp_path: Path, name: str) -> None:
    change, said = WRONG_FIELDS[name]
    (tmp_path / "k.ptx").write_text(LAUNCHED)
    (tmp_path / "k.json").write_text(json.dumps(described({})))
    (target,) = load(str(tmp_path / "k.ptx"))
    assert check(target.form()).verdict == "proved"
    (tmp_path / "k.json").write_text(json.dumps(described(change)))
    (target,) = load(str(tmp_path / "k.ptx"))
    with pytest.raises(LaunchError) as caught:
        target.form()
    assert str(caught.value).startswith(f"{tmp_path / 'k.json'}: {said}"), str(caught.value)


def test_what_the_launch_does_not_say_the_kernel_says() -> None:
    text = f"{HEAD.format(params='')}ret; }}"
    says = text.replace(")\n{", ")\n.reqntid 64\n.reqnctapercluster 2\n{")
    program = lower(read(says), read(says).entries[0], Launch("k", (4, 1, 1))).kernel
    assert (program.warps, program.cluster) == (2, (2, 1, 1))
    wrong = {
        "x = 3 is not a multiple of the cluster's 2": (says, Launch("k", (3, 1, 1))),
        "cluster: [1, 1, 1] contradicts .reqnctapercluster 2": (
            says, Launch("k", (4, 1, 1), cluster=(1, 1, 1))
        ),
        "give the block: the PTX has no .reqntid": (text, Launch("k", (4, 1, 1))),
    }  # fmt: skip
    for message, (source, launch) in wrong.items():
        with pytest.raises(LaunchError) as caught:
            lower(read(source), read(source).entries[0], launch)
        assert message in str(caught.value)


#: a launch without a cluster
_NONE = (0, 0, 0)


@pytest.mark.parametrize(
    ("says", "cluster", "wrong"),
    [
        (".explicitcluster", (1, 1, 1), ""),
        (".explicitcluster", (2, 1, 1), ""),
        (".explicitcluster\n.reqnctapercluster 2", _NONE, ""),
        (".maxclusterrank 2", _NONE, ""),
        (
            ".explicitcluster", _NONE,
            "cluster: give the cluster: the PTX has .explicitcluster, and no .reqnctapercluster",
        ),
        (
            ".explicitcluster\n.maxclusterrank 2", _NONE,
            "cluster: give the cluster: the PTX has .explicitcluster, and no .reqnctapercluster",
        ),
        (".reqntid 32\n.reqnctapercluster 2\n.blocksareclusters", _NONE, ""),
        (".reqntid 32\n.reqnctapercluster 2\n.blocksareclusters", (2, 1, 1), ""),
        (
            ".reqnctapercluster 2\n.blocksareclusters", (2, 1, 1),
            ".blocksareclusters needs .reqntid, which the PTX does not have",
        ),
        (
            ".reqntid 32\n.blocksareclusters", (2, 1, 1),
            ".blocksareclusters needs .reqnctapercluster, which the PTX does not have",
        ),
    ],
)  # fmt: skip
def test_kernels_that_have_to_be_launched_with_clusters(
    says: str, cluster: tuple[int, int, int], wrong: str
) -> None:
    """PTX 11.7.2, 11.8.1: another launch fails."""
    text = f"{HEAD.format(params='')}ret; }}".replace(")\n{", f")\n{says}\n{{")
    module = read(text, "k.ptx")
    launch = Launch("k", (4, 1, 1), (32, 1, 1), cluster)
    if not wrong:
        assert check(lower(module, module.entries[0], launch)).verdict == "proved"
        return
    with pytest.raises(LaunchError) as caught:
        lower(module, module.entries[0], launch)
    assert str(caught.value) == f"k: {wrong}"


def test_a_dependent_launch_must_wait_for_the_grid_before_it() -> None:
    load = "ld.param.u64 %rd1, [a]; {wait}\nld.global.u32 %r5, [%rd1];\nret; }}"
    verdicts = []
    for wait in ("", "griddepcontrol.wait;"):
        text = HEAD.format(params=".param .u64 a") + load.format(wait=wait)
        module = read(text, "k.ptx")
        launch = Launch("k", (1, 1, 1), (32, 1, 1), dependent=True, params=(Pointer("a", 64),))
        verdicts.append(check(lower(module, module.entries[0], launch)).verdict)
    assert verdicts == ["failed", "proved"]


#: a lane waits for the grid before, and copies; another arms the barrier, and behind the copy its
#: warp uses a tensor
BEHIND_A_COPY = (
    "mov.u32 %r1, smem; mov.u32 %r2, 1; mov.u32 %r4, %tid.x; setp.eq.u32 %p0, %r4, 0;\n"
    "@%p0 mbarrier.init.shared::cta.b64 [%r1], %r2; setp.lt.u32 %p3, %r4, 32;\n"
    "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; add.u32 %r5, %r1, 128; mov.u32 %r6, 7;\n"
    "setp.eq.u32 %p4, %r4, 32; bar.sync 0;\n@!%p3 bra USE;\n@!%p0 bra END;\n{before}\n"
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd1], 64, [%r1];\n"
    "{after}\nbra END;\nUSE: @%p4 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;\n"
    f"{WAIT}{{use}}\nEND:\n"
)
STORES, LOADS = "st.global.u32 [%rd2], %r6;", "ld.global.u32 %r7, [%rd2];"


@pytest.mark.parametrize(
    ("before", "after", "use", "at"),
    [
        ("griddepcontrol.wait;", "", STORES, []),
        ("", "griddepcontrol.wait;", STORES, [7, 13]),
        ("griddepcontrol.wait;", "", LOADS, [13]),
    ],
)
def test_what_comes_behind_a_copy_that_waited_for_the_grid_before(
    before: str, after: str, use: str, at: list[int]
) -> None:
    """In ThunderKittens only who loads waits; the stores of the epilogue come later in every
    schedule. A load may be made early, unless an acquire says otherwise (D17)."""
    body = BEHIND_A_COPY.format(before=before, after=after, use=use)
    text = HEAD.format(params=".param .u64 a, .param .u64 b") + body + "ret;\n}\n"
    module = read(text, "k.ptx")
    params = (Pointer("a", 64), Pointer("b", 64))
    launch = Launch("k", (1, 1, 1), (64, 1, 1), dependent=True, dynamic_shared=4096, params=params)
    found = check(lower(module, module.entries[0], launch))
    assert found.verdict == ("failed" if at else "proved"), found.reasons
    places = [p.loc.line - FIRST for finding in found.findings for p in finding.participants]
    assert sorted(set(places)) == at


@pytest.mark.parametrize(
    ("instruction", "said"),
    [
        ("mov.u32 %r99, 0;", "%r99"),
        ("mov.u32 %r1, 0, 0;", "mov.u32: this form does not take 3 operands of these kinds"),
        ("mov.u32 %r1;", "mov.u32: this form does not take 1 operand of these kinds"),
        (
            "ld.shared.u32 [smem];",
            "ld.shared.u32: this form does not take 1 operand of these kinds",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16 {%r1}, %rd1, %rd2, 1;",
            "this form does not take 4 operands of these kinds",
        ),
    ],
)
def test_errors_of_the_text_are_not_unsupported(instruction: str, said: str) -> None:
    with pytest.raises(PtxError) as caught:
        report(instruction)
    assert not isinstance(caught.value, Unsupported)
    assert caught.value.line == FIRST
    assert said in caught.value.what


#: warp 0 initialises, stores and arrives, warp 1 waits in some form and loads
HANDED_OVER = (
    "mov.u32 %r1, smem; mov.u32 %r2, 1; mov.u32 %r3, %tid.x; setp.eq.u32 %p0, %r3, 0;\n"
    "@%p0 mbarrier.init.shared::cta.b64 [%r1], %r2;\nbar.sync 0;\n"
    "setp.ge.u32 %p3, %r3, 32;\n@%p3 bra W;\n@%p0 st.shared.u32 [%r1+64], %r2;\n"
    "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];\nret;\nW: {wait}"
    "ld.shared.u32 %r5, [%r1+64];\n"
)
TRY = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], {parity};"
#: a loop that is left by a branch forward, and a poll before a loop
FORMS = {
    "two jumps": f"L: {TRY}\n@%p1 bra D;\nbra L;\nD: ",
    "peek": f"{TRY}\n@%p1 bra D;\nL: {TRY.replace('%p1', '%p2')}\n@!%p2 bra L;\nD: ",
    "selected": f"L: {TRY} selp.u32 %r6, 1, 0, %p1; setp.ne.u32 %p2, %r6, 0;\n@%p2 bra D;\nbra L;"
    "\nD: ",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_loop_of_polls_in_any_form_is_a_wait(form: str) -> None:
    right = HANDED_OVER.format(wait=form.format(parity=0))
    assert report(right, warps=2).verdict == "proved"
    wrong = report(HANDED_OVER.format(wait=form.format(parity=1)), warps=2)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [5, 8 + form.count("\n")]


@pytest.mark.parametrize("opcode", ["trap", "brkpt"])
def test_a_trap_that_no_lane_executes(opcode: str) -> None:
    body = f"mov.u32 %r2, %tid.x; setp.gt.u32 %p1, %r2, {{most}};\n@%p1 {opcode};\n"
    assert report(body.format(most=31)).verdict == "proved"
    found = report(body.format(most=30))
    assert found.verdict == "unsupported"
    assert f"the kernel executes {opcode}" in found.findings[0].message


def test_a_lane_that_waits_for_other_ctas_while_the_rest_of_its_warp_waits_for_it() -> None:
    """They need not all be resident; and the rest of the warp parts before anybody has moved."""
    body = (
        "ld.param.u64 %rd1, [c]; mov.u32 %r2, %tid.x; setp.ne.u32 %p0, %r2, 0;\n@%p0 bra D;\n"
        "atom.global.add.u32 %r3, [%rd1], 1;\nL: ld.volatile.global.u32 %r4, [%rd1];\n"
        "setp.lt.u32 %p1, %r4, 4;\n@%p1 bra L;\nD: mov.u32 %r5, %nctaid.x; bar.warp.sync -1;"
    )
    counter = Pointer("c", 4, contents=Contents("u32", (0,)))
    loaded = program(body, grid=4, params=(".param .u64 c",), values=(counter,))
    found = check(loaded)
    assert found.verdict == "failed"
    assert found.rules == {"deadlock"}
    assert found.witness is not None
    # a recording has no moves to which the parting could belong
    assert {f.rule for f in retrace(loaded, found.witness).findings} == {"deadlock"}


def test_an_address_that_a_lane_hands_to_the_others_is_one_of_what_is_declared() -> None:
    shared = INIT.replace("mov.u32 %r1, smem;", "mov.u32 %r4, smem; {shuffle}")
    one = "shfl.sync.idx.b32 %r1, %r4, 0, 31, -1;"
    assert report(shared.replace("{shuffle}", one) + ARRIVE + WAIT).verdict == "proved"
    wrong = report(shared.replace("{shuffle}", one) + WAIT)
    assert (wrong.verdict, wrong.rules == {"deadlock"}) == ("failed", True)


# ------------------------------------------------------------------ instructions that are rare


def with_c(body: str, *, warps: int = 1, strict: Strict = "practice") -> Report:
    """A kernel with a buffer."""
    return report(
        body, params=(".param .u64 c",), values=(Pointer("c", 4096),), warps=warps, strict=strict
    )


def said(found: Report) -> tuple[str, set[str]]:
    """The verdict and the rules."""
    return found.verdict, set(found.rules)


def test_of_clusters_that_were_not_run_nothing_is_said_of_what_they_discard() -> None:
    """Each discards a line of its own; in a small grid all are run."""
    own = (
        "ld.param.u64 %rd1, [c]; mov.u32 %r5, %ctaid.x; mul.wide.u32 %rd2, %r5, 128;"
        "add.u64 %rd3, %rd1, %rd2; elect.sync _|%p0, -1;\n"
        "@%p0 discard.global.L2 [%rd3], 128;\n"
    )
    values = (Pointer("c", 128 * 512),)
    params = (".param .u64 c",)
    many = report(own, params=params, values=values, grid=512)
    assert many.verdict == "bounded"
    assert any("discarded" in reason for reason in many.reasons)
    assert report(own, params=params, values=values, grid=32).verdict == "proved"


def test_a_predicate_of_lop3_and_the_place_of_a_bit_decide() -> None:
    begin = "mov.u32 %r1, %tid.x; setp.lt.u32 %p2, %r1, 32;\n"
    for decide in (
        "fns.b32 %r2, 0xF0, 0, 2; setp.eq.u32 %p1, %r2, 5;\n",
        "lop3.or.b32 %r2|%p1, %r1, 0, 0, 0xF0, %p2;\n",
        "lop3.and.b32 _|%p1, -1, -1, 0, 0xC0, %p2;\n",
    ):
        right = begin + decide + "@%p1 bra L; bar.sync 1, 64;\nL: bar.sync 0;"
        assert report(right).verdict == "proved", decide
        found = report(right.replace("@%p1", "@!%p1"))
        assert said(found) == ("failed", {"named-barrier"}), decide
        assert lines(found) == [2]


def test_a_register_of_128_bits_that_nothing_sets_is_not_another_lines_fault() -> None:
    begin = ".reg .b128 %q<3>;\nld.param.u64 %rd1, [c];\n"
    assert with_c(begin + "st.global.b128 [%rd1], %q1;").verdict == "proved"
    for use in ("add.u64 %rd2, %rd1, %q1;", "atom.exch.global.b128 %q2, [%rd1], %q1;"):
        with pytest.raises(PtxError) as caught:
            with_c(begin + use)
        assert caught.value.line == FIRST + 2


def test_a_type_may_stand_anywhere_among_the_qualifiers() -> None:
    """As ``ptxas`` has it."""
    found = with_c("ld.param.u64 %rd1, [c];\nld.u32.global.volatile %r1, [%rd1];\n"
                   "st.u32.global.wt [%rd1], %r1;")  # fmt: skip
    assert (found.verdict, lines(found)) == ("failed", [1, 2])
    for wrong in ("ld.global %r1, [%rd1];", "ld.shared.bulk %r1, [%r2];",
                  "mov %r1, %r2;"):  # fmt: skip
        with pytest.raises(PtxError, match="does not end with a type"):
            with_c(wrong)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("add.u32 %rd2, %rd3, %rd4;", "add.u64 %rd2, %rd3, %rd4;"),
        ("mul.wide.u32 %r3, %r4, %r5;", "mul.wide.u32 %rd3, %r4, %r5;"),
        ("shl.b64 %rd2, %rd3, %rd4;", "shl.b64 %rd2, %rd3, %r4;"),
        ("setp.eq.u32 %p1, %rd3, 0;", "setp.eq.u64 %p1, %rd3, 0;"),
        ("setp.eq.and.u32 %p1, %r3, 0, %r4;", "setp.eq.and.u32 %p1, %r3, 0, !%p2;"),
        ("selp.b32 %r3, 1, 0, %r4;", "selp.b32 %r3, 1, 0, %p2;"),
        ("cvt.u64.u32 %r3, %r4;", "cvt.u32.u16 %rd3, %r4;"),
        ("mov.b32 %r3, %rd3;", "mov.b64 {%r3, _}, %rd3;"),
        ("mov.b64 %rd3, {%r3, %rd4};", "mov.b64 %rd3, {%r3, %r4};"),
        ("mov.b32 %r3, %p2;", "mov.pred %p1, !%p2;"),
        ("ld.shared.u64 %r3, [smem];", "ld.shared.u32 %rd3, [smem];"),
        ("st.shared.u64 [smem], %r3;", "st.shared.u32 [smem], %rd3;"),
        ("shfl.sync.idx.b32 %r3, %rd3, 0, 31, -1;", "shfl.sync.idx.b32 %r3, %r4, 0, 31, -1;"),
    ],
)
def test_registers_are_as_wide_as_the_type_of_the_instruction(wrong: str, right: str) -> None:
    """But for those of ld, st and cvt, which may be wider (PTX 9.4.1)."""
    begin = "mov.u32 %r2, 0; st.shared.u64 [smem], 0; bar.sync 0;\n"
    with_c(begin + right)
    with pytest.raises(PtxError, match="bits, the instruction") as caught:
        with_c(begin + wrong)
    assert caught.value.line == FIRST + 1


def test_a_variable_is_in_the_state_space_that_an_access_names() -> None:
    for wrong in ("ld.shared.u64 %rd3, [c];", "ld.const.u32 %r3, [smem];",
                  "ld.global.u32 %r3, [smem];", "st.global.u32 [smem], %r3;"):  # fmt: skip
        with pytest.raises(PtxError, match=r"is in \.(param|shared)") as caught:
            with_c(wrong)
        assert caught.value.line == FIRST
    with_c("ld.param.u64 %rd3, [c]; st.shared::cta.u32 [smem], 0; ld.shared.u32 %r3, [smem];")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("shfl.sync.idx.b64 %rd3, %rd4, 0, 31, -1;", "shfl.sync.idx.b32 %r3, %r4, 0, 31, -1;"),
        ("setp.lo.s32 %p1, %r3, %r4;", "setp.lo.u32 %p1, %r3, %r4;"),
        ("setp.lt.b32 %p1, %r3, %r4;", "setp.eq.b32 %p1, %r3, %r4;"),
        ("add.b32 %r3, %r4, %r5;", "add.u32 %r3, %r4, %r5;"),
        ("popc.u32 %r3, %r4;", "popc.b32 %r3, %r4;"),
        ("bfind.b32 %r3, %r4;", "bfind.u32 %r3, %r4;"),
    ],
)
def test_types_that_an_instruction_does_not_have(wrong: str, right: str) -> None:
    with_c(right)
    with pytest.raises(Unsupported):
        with_c(wrong)


@pytest.mark.parametrize(("kinds", "k"), [("tf32.tf32", 8), ("e4m3.e5m2", 32), ("s8.u8", 32)])
@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_a_in_registers_of_other_types_than_those_of_16_bits(
    kinds: str, k: int, strict: Strict
) -> None:
    """They are as many registers, and in use until the wait (F6); PTX says what is in which."""
    sums, letter = ("s32", "r") if kinds.startswith("s8") else ("f32", "f")
    results = ", ".join(f"%{letter}{20 + i if letter == 'r' else i}" for i in range(4))
    body = (
        "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; mad.lo.s32 %r3, %r2, 32, %r1; mov.u32 %r4, 0;"
        "st.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4};"
        "st.shared.v4.u32 [%r3+16], {%r4, %r4, %r4, %r4};"
        "fence.proxy.async; bar.sync 0; shr.u32 %r5, %r1, 4; cvt.u64.u32 %rd1, %r5;"
        "and.b64 %rd2, %rd1, 0x3FFF; or.b64 %rd3, %rd2, 0x0000001000080000;"
        "mov.u32 %r11, %r4; mov.u32 %r12, %r4; mov.u32 %r13, %r4;"
        "mov.u32 %r14, %r4;\nwgmma.fence.sync.aligned;\n"
        f"wgmma.mma_async.sync.aligned.m64n8k{k}.{sums}.{kinds} {{{results}}},"
        f" {{%r11, %r12, %r13, %r14}}, %rd3, 0{', 1, 1' if sums == 'f32' else ''};\n"
        "wgmma.commit_group.sync.aligned;\nMOVE\nwgmma.wait_group.sync.aligned 0;\n"
    )
    assert report(body.replace("MOVE", ""), warps=4, strict=strict).verdict == "proved"
    found = report(body.replace("MOVE", "mov.u32 %r12, 5;"), warps=4, strict=strict)
    assert said(found) == ("failed", {"wgmma-order"})
    assert lines(found) == [2, 4]


PART = replace(TILE, shape=(32, 16), offset=8 * 256 + 64)
STORE = "ld.param.u64 %rd5, [p];\n@%p0 st.global.u32 [%rd5+{at}], 7;\n"


@pytest.mark.parametrize("strict", ["practice", "ptx"])
@pytest.mark.parametrize(
    ("at", "races"),
    [
        # the part begins in row 8, at the 16th element, and has 16 rows of 32
        (8 * 256 + 64, True), (15 * 256 + 64 + 31 * 4, True),
        (0, False), (7 * 256 + 64, False), (8 * 256 + 60, False), (8 * 256 + 64 + 32 * 4, False),
        (16 * 256 + 64, False),
    ],
)  # fmt: skip
def test_a_map_of_a_part_of_a_buffer(at: int, races: bool, strict: Strict) -> None:
    """As of a slice: what is copied lies from where the part begins, and nowhere else."""
    body = INIT + STORE.format(at=at) + LOAD.format(nbytes=1024) + WAIT
    params = (".param .align 64 .b8 a[128]", ".param .u64 p")
    found = report(body, params=params, values=(PART, Pointer("a", 64 * 256)), strict=strict)
    if not races:
        assert found.verdict == "proved", found
        return
    assert said(found) == ("failed", {"proxy-fence"})
    assert lines(found) == [4, 7]


@pytest.mark.parametrize(("offset", "races"), [(0, True), (128, False), (8 * 256, False)])
def test_two_parts_of_one_buffer(offset: int, races: bool) -> None:
    """A copy out of one and a copy into the other, of which each has its own bounds: a box that
    sticks out of its part accesses nothing there."""
    body = (
        INIT
        + LOAD.format(nbytes=1024)
        + "mov.u64 %rd3, b; cvta.param.u64 %rd4, %rd3; add.s32 %r9, %r1, 3072; fence.proxy.async;\n"
        "@%p0 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd4, {%r7, %r7}], [%r9];\n"
        "@%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;\n" + WAIT
    )
    first = replace(TILE, shape=(32, 4))
    second = replace(TILE, shape=(32, 64 - offset // 256), offset=offset)
    fill = "st.shared.v4.u32 [%r31], {%r30, %r30, %r30, %r30};"
    fills = "".join(fill.replace("[%r31]", f"[%r31+{16 * i}]") for i in range(2))
    begin = (
        "mov.u32 %r30, 0; mov.u32 %r32, %tid.x; mov.u32 %r33, smem;"
        f"mad.lo.s32 %r31, %r32, 32, %r33; add.s32 %r31, %r31, 3072; {fills} fence.proxy.async;"
        "bar.warp.sync -1;\n"
    )
    params = (".param .align 64 .b8 a[128]", ".param .align 64 .b8 b[128]")
    found = report(begin + body, params=params, values=(first, second))
    assert said(found) == (("failed", {"race"}) if races else ("proved", set())), found


def test_parts_that_are_no_views_of_one_tensor_are_refused() -> None:
    params = (".param .align 64 .b8 a[128]", ".param .align 64 .b8 b[128]")
    for other, why in (
        (replace(TILE, shape=(32, 16), strides=(128,)), "the same strides"),
        (replace(PART, offset=2), "inside an element"),
    ):
        with pytest.raises(LaunchError, match=why):
            report("ret;", params=params, values=(TILE, other))


#: statements of all kinds, one a line
STATEMENTS = (
    INIT
    + LOAD.format(nbytes=1024)
    + WAIT
    + ARRIVE
    + "ld.shared.v2.u32 {%r9, %r10}, [%r1+16]; st.shared::cta.u16 [%r1+40], 7;\n"
    "setp.lt.and.s32 %p2, %r2, 3, %p0; selp.b32 %r3, %r1, %r2, %p2; mov.b64 {%r4, %r5}, %rd1;\n"
    "shfl.sync.idx.b32 %r6, %r2, 0, 31, -1; vote.sync.any.pred %p3, %p2, -1;\n"
    "cvt.u64.u32 %rd3, %r2; lop3.b32 %r3, 1, 2, 3, 4;\n"
    "atom.shared.add.u32 %r7, [%r1+48], 1; red.shared.max.s32 [%r1+52], %r2; fence.proxy.async;\n"
    "bar.sync 0; barrier.sync 1, 32; fence.acq_rel.gpu; cp.async.wait_all;\n"
)
WORDS = ("u8", "s16", "b32", "u64", "f32", "b128", "pred", "global", "shared::cluster", "local",
         "v4", "relaxed", "sys", "sync", "bulk", "async", "wide", "0", "-1", "%r1", "%rd1", "%p1",
         "_", "4294967296", "0f3F800000", "[%rd1]", "smem", "%tid.x", "!%p1")  # fmt: skip


def test_the_statements_that_are_changed_are_read() -> None:
    loaded = program(STATEMENTS, params=(".param .align 64 .b8 a[128]",), values=(TILE,))
    assert check(loaded, schedules=0, budget=0).verdict != "unsupported"


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_no_change_of_a_statement_is_an_error_of_ours(data: st.DataObject) -> None:
    """Whatever a text says, it is read, or refused with its line."""
    parts = re.split(r"([.,;\s])", STATEMENTS)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(parts) - 1))
        new = data.draw(st.sampled_from(("", *WORDS, *parts)))
        match data.draw(st.integers(0, 2)):
            case 0:
                parts[place] = new
            case 1:
                parts.insert(place, new)
            case _:
                parts[place : place + 2] = []
    with suppress(TilesimError):
        check(
            program("".join(parts), params=(".param .align 64 .b8 a[128]",), values=(TILE,)),
            schedules=0, budget=0,
        )  # fmt: skip
