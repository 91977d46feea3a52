"""Names from the CUDA source: parameters, bytes, named barriers; numbers that are passed instead of
a launch's."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time

import pytest
from click.testing import CliRunner

from tilesim.cli import main
from tilesim.findings.source_names import named_barrier_name, parameter_names, struct_in
from tilesim.loader.ptx import module
from tilesim.ptx.demangle import readable

PTX = (
    '.version 9.4\n.target sm_90a\n.address_size 64\n.file 1 "k.cu"\n'
    ".visible .entry _ZN1n1kIfEEvPfi(.param .u64 a, .param .u32 b, .param .f32 c)\n.reqntid 32\n"
    "{\n.reg .b32 %r<9>; .reg .pred %p;\n.loc 1 LINE 3\nld.param.u32 %r1, [b];\n"
    "setp.lt.s32 %p, %r1, 3;\n@%p bra E;\nbar.sync 0, 64;\nE: ret;\n}\n"
)
LAUNCH = {
    "schema": "tilesim.launch/1", "entry": "_ZN1n1kIfEEvPfi", "grid": [1], "block": [32],
    "params": [
        {"kind": "pointer", "name": "out", "bytes": 64},
        {"kind": "scalar", "name": "turns", "type": "u32", "value": 5},
        {"kind": "scalar", "name": "", "type": "f32", "value": 1.0},
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is written lies in the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(source: str, line: int = 3) -> tuple[str, ...]:
    Path("k.cu").write_text(source)
    Path("k.ptx").write_text(PTX.replace("LINE", str(line)))
    found = module("k.ptx")
    entry = found.entries[0]
    return parameter_names(found.source_of(entry), readable(entry.name), len(entry.params))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("template <typename T>\n__global__ void __launch_bounds__(128, 1)\n"
         "k(T *__restrict__ out, const int turns, // with (\n  Pair<T, 4> p = {1, 2}) {}",
         ("out", "turns", "p")),
        ("\n\n__global__ void k(float (&out)[4], int turns, float x[2]) {", ("", "turns", "x")),
        ("\n\n__global__ void k(float *, int, float) {", ("", "", "")),
        # another number of parameters, another kernel, a call, one that comes later
        ("\n\n__global__ void k(float *out, int turns) {", ()),
        ("\n\n__global__ void kk(float *a, int b, float c) {", ()),
        ("\n\nvoid k(float *a, int b, float c) {", ()),
        ("\n\n\n\n__global__ void k(float *a, int b, float c) {", ()),
    ],
)  # fmt: skip
def test_names_of_parameters(source: str, found: tuple[str, ...]) -> None:
    assert names(source) == found


def test_without_the_source_none_are_known() -> None:
    names("")
    Path("k.cu").unlink()
    found = module("k.ptx")
    assert parameter_names(found.source_of(found.entries[0]), "n::k<float>", 3) == ()


def test_a_template_of_a_launch_has_them() -> None:
    names("\n\n__global__ void k(float *out, int turns, float) {")
    text = CliRunner().invoke(main, ["launch-template", "k.ptx"]).output
    assert [p["name"] for p in json.loads(text)["params"]] == ["out", "turns", "c"]


def check(*arguments: str) -> tuple[int, str]:
    names("")
    Path("k.json").write_text(json.dumps(LAUNCH))
    result = CliRunner().invoke(main, ["check", *arguments])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize("name", ["turns", "1", "b"])
def test_a_number_is_passed_instead_of_the_launchs(name: str) -> None:
    code, text = check("k.ptx", "--param", f"{name}=2")
    assert code == 0
    assert text.startswith("PROVED k.ptx::n::k<float>[turns=2]")
    assert "launched with turns = 2" in text
    code, text = check("k.ptx", "--param", f"{name}=0x3")
    assert (code, text.split()[0]) == (1, "FAILED")
    again, other = check(f"k.ptx::n::k<float>[{name}=2]")
    assert (again, other.split()[0]) == (0, "PROVED")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("turns=-1", "k.ptx: turns: -1 does not fit u32 (0 to 4294967295)"),
        ("turns=4294967296", "does not fit u32"),
        ("turns=1.5", "k.ptx: turns takes an integer of type u32, not '1.5'"),
        ("out=3", "k.ptx: out is a pointer, no number"),
        ("turn=3", "n::k<float> has no parameter turn (did you mean turns?); it takes the numbers"),
        ("3=3", "has no parameter 3"),
        ("2=1e99", "does not fit f32"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(given: str, says: str) -> None:
    code, text = check("k.ptx", "--param", given)
    assert code == 2
    assert says in text


#: a struct in dynamic shared memory
STRUCT = """#define ROWS 4
constexpr int WIDTH = 8 * ROWS;  // 32
struct Storage {
  alignas(128) float data[ROWS][WIDTH];  /* 512 bytes */
  char flags[3];
  uint64_t full[ROWS], empty[ROWS];
  alignas(16) int last;
};
__global__ void other() { extern __shared__ char mem[]; use(mem); }
__global__ void k() {
  extern __shared__ char mem[];
  Storage &s = *reinterpret_cast<Storage *>(mem);
  asm volatile("" ::: "mem");
  s.last = 0;
}
"""
EXTERN = "extern __shared__ char mem[];"
CAST = "Storage &s = *reinterpret_cast<Storage *>(mem);"


def byte(text: str, offset: int, *, nbytes: int = 1024) -> str | None:
    """What a byte of the variable is called."""
    Path("k.cu").write_text(text)
    line = text[: text.find("s.last = ")].count("\n") + 1
    found = struct_in(("k.cu", line), "k::mem", nbytes)
    return None if found is None else found.called(offset)


@pytest.mark.parametrize(
    ("offset", "name"),
    [
        (0, "s.data[0]"), (4, "s.data[0][1]"), (256, "s.data[2]"), (258, "s.data[2][0]+2"),
        (514, "s.flags[2]"), (520, "s.full[0]"), (543, "s.full[2]+7"), (552, "s.empty[0]"),
        (592, "s.last"), (515, None), (588, None), (700, None),
    ],
)  # fmt: skip
def test_a_byte_is_that_of_a_member(offset: int, name: str | None) -> None:
    assert byte(STRUCT, offset) == name


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        (CAST, "Storage *s = (Storage *)mem;", "s->full[1]"),
        (CAST, "auto &s = *reinterpret_cast<Storage*>( mem );", "s.full[1]"),
        (f"  {EXTERN}\n  {CAST}", "  __shared__ Storage mem;", "mem.full[1]"),
        (f"  {EXTERN}\n  {CAST}", "  __shared__ alignas(128) Storage mem;",
         "mem.full[1]"),
        (f"{EXTERN}\n  {CAST}", "__shared__ float mem[4][ROWS * 10];", "mem[3][12]"),
        (f"{EXTERN}\n  {CAST}", "__shared__ alignas(128) unsigned long long mem[128];", "mem[66]"),
        (f"{EXTERN}\n  {CAST}", "__shared__ float mem[N];", None),
        (f"{EXTERN}\n  {CAST}", "__shared__ float mem[256]; { __shared__ int mem[9]; }", None),
        (f"{EXTERN}\n  {CAST}", "__shared__ int mem;", None),
        ("struct Storage", "namespace a {}\nnamespace b {\nstruct Storage", "s.full[1]"),
        ("struct Storage", "template <int ROWS> struct Outer {\nstruct Storage", None),
        ("__global__ void k", "namespace c { struct X { int full; }; }\n__global__ void k",
         "s.full[1]"),
        # what is there cannot be told
        (CAST, "Storage &s = *reinterpret_cast<Storage *>(mem + 128);", None),
        (CAST, CAST + " float *more = (float *)(mem + 64);", None),
        (CAST, CAST + " Other &o = *reinterpret_cast<Other *>(mem);", None),
        (CAST, "Storage *s = *reinterpret_cast<Storage *>(mem);", None),
        ("uint64_t full", "unsigned long long full", "s.full[1]"),
        ("uint64_t full", "std::int64_t full", "s.full[1]"),
        ("char flags[3];", "unsigned flags;", "s.full[1]"),
        ("uint64_t full", "unsigned full", "s.full[3]"),
        ("char flags[3];", "Flags flags;", None),
        ("char flags[3];", "char flags[N];", None),
        ("char flags[3];", "char *flags;", None),
        ("char flags[3];", "union { int a; float b; };", None),
        ("char flags[3];", "\n#ifdef MORE\n  int more;\n#endif\n", None),
        ("struct Storage", "template <int WIDTH> struct Storage", None),
        ("struct Storage", "struct Storage { int a; };\nstruct Storage", None),
        ("#define ROWS 4", "#ifndef ROWS\n#define ROWS 4\n#endif", None),
        ("#define ROWS 4", "#define ROWS 4\n#define ROWS 5", None),
        ("#define ROWS 4", "#define ROWS sizeof(int)", None),
        ("#define ROWS 4", "#define ROWS 4000000", None),
    ],
)  # fmt: skip
def test_a_name_that_may_be_wrong_is_none(old: str, new: str, name: str | None) -> None:
    assert byte(STRUCT.replace(old, new), 528) == name


def test_a_struct_is_no_larger_than_its_memory() -> None:
    assert byte(STRUCT, 528, nbytes=595) is None
    assert byte(STRUCT, 528, nbytes=596) == "s.full[1]"


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("bar_sync((int)Barriers::Epilogue, 64);", "Barriers::Epilogue"),
        ("bar_sync(MATH, 64);", "MATH"), ("sync(0 + LATER);", "LATER"),
        ("bar_sync(3, 64);", None), ("bar_sync(Barriers::Load, 64);", None),
        ("bar_sync(MATH, LATER);", None), ("bar_sync(TWICE, 3);", None),
        ("bar_sync(3, 64);  // MATH", None),
    ],
)  # fmt: skip
def test_a_named_barrier_is_the_constant_that_is_passed(call: str, name: str | None) -> None:
    Path("k.cu").write_text(
        "enum class Barriers : int { Load = 2, Epilogue, Store };\n#define MATH 3u\n"
        "constexpr int LATER = MATH;\n#define TWICE 3\n#define TWICE 2\n"
        f"{call}\nbar_sync(3, 64);\n"
    )
    around = [(("k.cu", 6), ("away.h", 1)), (("k.cu", 7),)]
    assert named_barrier_name(3, around) == name
    assert named_barrier_name(3, around[1:]) is None


@pytest.mark.parametrize(
    "piece",
    [
        "/*",
        "#if 1\n",
        "__shared__ a ",
        "__shared__ float mem[9",
        "struct Storage {",
        "constexpr int a = ",
        "mem ",
        '"',
    ],
)
def test_a_hostile_source_takes_little_time(piece: str) -> None:
    start = process_time()
    byte(STRUCT.replace("template", "") + piece * 40_000, 528)
    byte(piece * 40_000 + STRUCT, 528)
    assert process_time() - start < 2


@pytest.mark.parametrize(
    ("threads", "says"),
    [
        (64, "writes s.data[1][1] and nothing orders it after the write by k (warp 0)"),
        (96, "named barrier 4 (ROWS) is joined with 96 threads, the CTA has 64"),
    ],
)
def test_a_report_has_these_names(threads: int, says: str) -> None:
    Path("k.cu").write_text(STRUCT.replace("s.last = 0;", "s.last = 0;\n  sync(ROWS, 64);"))
    store = 1 + STRUCT[: STRUCT.find("s.last = ")].count("\n")
    Path("k.ptx").write_text(
        '.version 9.4\n.target sm_90a\n.address_size 64\n.file 1 "k.cu"\n'
        ".extern .shared .align 128 .b8 mem[];\n.visible .entry k()\n.reqntid 64\n{\n"
        f".reg .b32 %r<3>;\n.loc 1 {store} 3\nmov.u32 %r1, mem;\n"
        "mov.u32 %r2, %tid.x;\nst.shared.u32 [%r1+132], %r2;\n"
        f".loc 1 {store + 1} 3\nbar.sync 4, {threads};\nret;\n}}\n"
    )
    launch = {"schema": "tilesim.launch/1", "entry": "k", "grid": [1], "block": [64], "params": []}
    Path("k.json").write_text(json.dumps(launch | {"dynamic_shared": 1024}))
    assert says in " ".join(CliRunner().invoke(main, ["check", "k.ptx"]).output.split())
