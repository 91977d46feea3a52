"""Lines of instructions: in inlined functions, of each of their calls, in each kernel."""

from __future__ import annotations

import pytest

from tests.gpu import needs
from tilesim.cubin.image import Image
from tilesim.cubin.line_table import LineTable, counted_on

from . import compiled

pytestmark = [needs.compiler, needs.disassembler]

SOURCE = """\
__device__ __forceinline__ void meet(int n) {
  asm volatile("bar.sync %0, 64;" :: "r"(n) : "memory");
}
__device__ __forceinline__ void twice(int n) {
  meet(n);
  meet(n + 1);
}
extern "C" __global__ void first(int *p) {
  meet(1);
  p[0] = 3;
  meet(1);
  meet(1);
}
extern "C" __global__ void second(int *p) {
  twice(2);
  if (p[1])
    twice(4);
}
"""
#: of each barrier its number, and lines: where it is, then the calls
FIRST = [("0x1", [2, 9]), ("0x1", [2, 11]), ("0x1", [2, 12])]
SECOND = [
    ("0x2", [2, 5, 15]), ("0x3", [2, 6, 15]), ("0x4", [2, 5, 17]), ("0x5", [2, 6, 17]),
]  # fmt: skip


@pytest.fixture(scope="module")
def image() -> Image:
    return compiled.image(SOURCE)


def test_each_call_of_an_inlined_function_has_its_own_line(image: Image) -> None:
    functions = compiled.functions(image)
    found = {
        name: [
            (one.operands[0], [line.line for line in one.lines])
            for one in function.code.values()
            if one.base == "BAR"
        ]
        for name, function in functions.items()
    }
    assert found == {"first": FIRST, "second": SECOND}
    (barrier, *_) = (one for one in functions["first"].code.values() if one.base == "BAR")
    assert barrier.lines[0].file.rpartition("/")[2] == "k.cu"


def test_lines_of_the_ptx_are_those_of_the_text_that_is_embedded(image: Image) -> None:
    assert image.ptx is not None
    lines = image.ptx.splitlines()
    for function in compiled.functions(image).values():
        for one in function.code.values():
            if one.base == "BAR":
                assert one.ptx is not None
                assert lines[one.ptx - 1].strip().startswith("bar.sync")


WAITS = """\
__device__ __forceinline__ void wait(unsigned b, unsigned parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;"
               " @!p bra again; }" :: "r"(b), "r"(parity) : "memory");
}
extern "C" __global__ void waits(int *p, int n) {
  __shared__ unsigned long long b[4];
  unsigned s = (unsigned)__cvta_generic_to_shared(b);
  wait(s, 0);
  p[0] = n;
  wait(s + 8, 1);
  p[1] = n;
  wait(s + 16, 0);
  p[2] = n;
}
"""


#: the same, with an instruction of its own in the loop
TWICE = WAITS.replace(
    "{ .reg .pred p; again: ",
    "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\\n @p bra done;\\n again: ",
).replace("again; }", "again;\\n done: }")


#: the same, with its line in the text of the assembly behind an empty one
APART = WAITS.replace("{ .reg .pred p; again: ", "{ .reg .pred p;\\n\\n again: ")


@pytest.mark.parametrize("source", [WAITS, TWICE, APART], ids=["one instruction", "two", "apart"])
def test_the_loop_of_a_wait_behind_the_code_has_the_line_of_the_wait(source: str) -> None:
    (function,) = compiled.functions(compiled.image(source)).values()
    waits: dict[str, set[tuple[int, ...]]] = {}
    for one in function.code.values():
        if "PHASECHK" in one.modifiers:
            lines = tuple(line.line for line in one.lines)
            waits.setdefault(one.operands[1], set()).add(lines)
    assert list(waits.values()) == [{(2, 8)}, {(2, 10)}, {(2, 12)}]
    assert sum("PHASECHK" in one.modifiers for one in function.code.values()) > 3


def test_a_cubin_without_lines_has_none() -> None:
    image = compiled.image(SOURCE, lines=False)
    codes = [one.code.values() for one in compiled.functions(image).values()]
    assert {(one.lines, one.ptx) for code in codes for one in code} == {((), None)}
    assert image.ptx is None


def test_a_damaged_table_says_nothing(image: Image) -> None:
    section = image.section(".debug_line")
    assert section is not None
    code = image.functions[0].section
    whole = LineTable(image)
    assert whole.lines(code, 0)
    damaged = 0
    for at in range(section.offset, section.offset + section.size):
        for value in (0, 0x7F, 0xFF):
            data = bytearray(image.data)
            data[at] = value
            table = LineTable(Image(bytes(data)))
            damaged += not table.lines(code, 0)
            assert table.ptx(code, 0) == whole.ptx(code, 0)
    assert damaged


#: by line of an embedded PTX: what is left of the comment that begins inline assembly, of `.loc`
ASSEMBLY = """\
.visible .entry k()

{
.reg .pred %p<2>;

bar.sync 0;


{
.reg .pred complete;

waitLoop:

mbarrier.try_wait.parity.b64 complete, [%r1], %r2;
@!complete bra.uni waitLoop;
}


{
.reg .b32 one;

mov.b32 one, 1;
}

{
.param .b32 param0;

st.param.b32 [param0], %r1;
call.uni f, (param0);
}
ret;
}
"""


def test_lines_that_are_counted_on_within_assembly() -> None:
    """From where it begins: at a line break, or at its brace; calls and functions are none."""
    assert counted_on(ASSEMBLY) == {12: 3, 14: 4, 15: 4, 22: 3}
    assert counted_on(ASSEMBLY.replace("}\n\n\n{", "}\n\n{"))[21] == 2
    assert counted_on(ASSEMBLY.replace("complete;\n\nwait", "complete;\nwait")) == {
        13: 4, 14: 4, 21: 3,
    }  # fmt: skip
    assert counted_on("{\n}\n{\n") == {}
