"""Parameters of which the place that is loaded is chosen while the kernel runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tilesim.checker import Report, check
from tilesim.ptx.launch import Field, Launch, Map, Parameter, Pointer, Scalar, Struct
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import LaunchError, PtxError, Unsupported

HEAD = (
    ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k({params})\n{{\n"
    ".reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;\nmov.u32 %r1, %tid.x; "
    "mov.u32 %r2, %ctaid.x;\n"
)
FIRST = HEAD.count("\n") + 1
#: stores to word ``%tid.x`` of the buffer whose address is ``%rd4``
STORE = "mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd4, %rd5;\nst.global.u32 [%rd6], %r1;\n"
#: the address of the struct that the CTA takes
CHOSEN = (
    "setp.eq.s32 %p1, %r2, 0; mov.b64 %rd1, s; mov.b64 %rd2, t; selp.b64 %rd3, %rd1, %rd2, %p1;"
)


def run(body: str, values: Mapping[str, Parameter], *, grid: int = 2) -> Report:
    sizes = {n: f".param .align 8 .b8 {n}[{v.size}]" for n, v in values.items()
             if isinstance(v, Struct)}  # fmt: skip
    scalars = {n: f".param .{v.type} {n}" for n, v in values.items() if isinstance(v, Scalar)}
    params = ", ".join((sizes | scalars)[name] for name in values)
    module = read(HEAD.format(params=params) + body + "ret;\n}\n", "k.ptx")
    launch = Launch("k", (grid, 1, 1), (32, 1, 1), params=tuple(values.values()))
    return check(lower(module, module.entries[0], launch))


def lines(found: Report) -> list[int]:
    return sorted({p.loc.line for p in found.findings[0].participants})


def struct(name: str, *buffers: str, number: int | None = 1) -> Struct:
    """Two numbers, and the addresses of buffers behind them."""
    fields: list[Field] = [Field(8 + 8 * n, Pointer(b, 256)) for n, b in enumerate(buffers)]
    fields.append(Field(4, Scalar("number", "u32", number)))
    return Struct(name, 8 + 8 * len(buffers), tuple(fields), bytes(8 + 8 * len(buffers)))


@pytest.mark.parametrize(
    "load",
    ["ld.param.u64 %rd4, [%rd3+16];", "cvta.param.u64 %rd7, %rd3; ld.u64 %rd4, [%rd7+16];"],
)
def test_a_choice_between_two_structs(load: str) -> None:
    body = f"{CHOSEN}\n{load}\n{STORE}"
    right = run(body, {"s": struct("s", "a", "b"), "t": struct("t", "b", "c")})
    assert right.verdict == "proved", right
    wrong = run(body, {"s": struct("s", "a", "b"), "t": struct("t", "c", "b")})
    assert wrong.rules == {"race"}
    assert lines(wrong) == [FIRST + 3]
    assert "b+0" in wrong.findings[0].message


#: as compilers write the place of element ``chooser`` modulo 2
FORMS = (
    "and.b32 %r3, {chooser}, 1; mul.wide.u32 %rd2, %r3, 8;",
    "shl.b32 %r3, {chooser}, 3; cvt.u64.u32 %rd7, %r3; and.b64 %rd2, %rd7, 8;",
)
ELEMENT = "mov.b64 %rd1, s; {form} add.s64 %rd3, %rd1, %rd2;\nld.param.u64 %rd4, [%rd3+8];\n"


def element(form: str, chooser: str) -> str:
    return ELEMENT.format(form=form.format(chooser=chooser))


@pytest.mark.parametrize("form", FORMS)
def test_an_element_of_an_array(form: str) -> None:
    """Each CTA stores to a buffer of its own, or each to both."""
    own, both = (element(form, chooser) for chooser in ("%r2", "%r1"))
    buffers = {"s": struct("s", "a", "b")}
    right = run(own + STORE, buffers)
    assert right.verdict == "proved", right
    assert run(own + STORE, {"s": struct("s", "a", "a")}).rules == {"race"}
    wrong = run(both + STORE, buffers)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [FIRST + 3]
    assert run(both + STORE, buffers, grid=1).verdict == "proved"


def test_an_element_behind_the_last_one() -> None:
    body = element(FORMS[0], "%r2").replace("+8]", "+16]") + STORE
    found = run(body, {"s": struct("s", "a", "b")})
    assert found.rules == {"out-of-bounds"}
    assert found.findings[0].participants[0].cta == 1
    assert lines(found) == [FIRST + 1]


STEERS = f"{CHOSEN}\nld.param.u32 %r4, [%rd3+4];\nsetp.ne.u32 %p2, %r4, 7;\n@%p2 bar.sync 1, 64;\n"


def test_a_number_that_steers() -> None:
    """A barrier for which a CTA lacks threads."""
    seven = struct("s", number=7)
    assert run(STEERS, {"s": seven, "t": seven}).verdict == "proved"
    wrong = run(STEERS, {"s": seven, "t": struct("t", number=8)})
    assert wrong.rules == {"named-barrier"}
    assert wrong.findings[0].participants[0].cta == 1
    unknown = run(STEERS, {"s": seven, "t": struct("t", number=None)})
    assert unknown.verdict == "bounded"
    assert "the contents of t" in unknown.reasons[0]


def test_a_number_by_itself() -> None:
    body = STEERS.replace("+4]", "]")
    values = {name: Scalar(name, "u32", 7) for name in "st"}
    assert run(body, {**values}).verdict == "proved"
    assert run(body, {**values, "s": Scalar("s", "u32", 8)}).rules == {"named-barrier"}


def test_a_tensor_map_is_named_by_where_it_is() -> None:
    map_ = Map("a", "u32", (32, 32), (128,), (32, 32))
    odd = Struct("s", 136, (Field(8, map_),), bytes(136))
    with pytest.raises(Unsupported, match=r"ld\.param\.u64"):
        run(f"{CHOSEN}\nld.param.u64 %rd4, [%rd3];\n", {"s": odd, "t": odd})


#: loads that reach the end of what they load from, and the same beyond it, or before its start
EDGES = [
    ("ld.param.u32 %r3, [n];", "ld.param.u64 %rd1, [n];", "bytes 0 to 7 of n, which has 4"),
    ("ld.param.u16 %r3, [n+2];", "ld.param.u32 %r3, [n+2];", "bytes 2 to 5 of n, which has 4"),
    ("ld.param.u32 %r3, [s+12];", "ld.param.u32 %r3, [s+16];", "bytes 16 to 19 of s, which has 16"),
    ("ld.param.u32 %r3, [s];", "ld.param.u32 %r3, [s+-4];", "bytes -4 to -1 of s, which has 16"),
    (
        "ld.param.v2.u32 {%r3, %r4}, [s+8];",
        "ld.param.v4.u32 {%r3, %r4, %r5, %r6}, [s+8];",
        "bytes 8 to 23 of s, which has 16",
    ),
    (
        "mov.b64 %rd1, s; add.u64 %rd2, %rd1, 8; ld.param.u64 %rd3, [%rd2];",
        "mov.b64 %rd1, s; add.u64 %rd2, %rd1, 8; ld.param.u64 %rd3, [%rd2+8];",
        "bytes 16 to 23 of s, which has 16",
    ),
    (
        "mov.b64 %rd1, s; cvta.param.u64 %rd2, %rd1; ld.u64 %rd3, [%rd2+8];",
        "mov.b64 %rd1, s; cvta.param.u64 %rd2, %rd1; ld.u64 %rd3, [%rd2+12];",
        "bytes 12 to 19 of s, which has 16",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("inside", "beyond", "what"), EDGES)
def test_a_load_lies_in_one_parameter(inside: str, beyond: str, what: str) -> None:
    """What lies between parameters, and before and behind them, is not said (PTX 5.1.6.1): such a
    load is refused also where its result is not used."""
    values: dict[str, Parameter] = {"n": Scalar("n", "u32", 1), "s": struct("s", "a")}
    assert run(inside + "\n", values).verdict == "proved"
    with pytest.raises(PtxError, match=rf"^k\.ptx:{FIRST}:.*{what} bytes"):
        run(beyond + "\n", values)


#: a barrier for which threads are lacking, unless a register is a number
UNLESS = "setp.ne.u64 %p1, %rd1, {number};\n@%p1 bar.sync 1, 64;\n"


def test_a_load_of_two_fields_has_the_bytes_of_both() -> None:
    """Not those that the struct has at their places, nor those of one of them and zeros."""
    fields = Field(0, Scalar("low", "u32", 7)), Field(4, Scalar("high", "u32", 9))
    body = "ld.param.u64 %rd1, [s];\n" + UNLESS
    values = {"s": Struct("s", 8, fields, bytes(8))}
    assert run(body.format(number=9 << 32 | 7), values).verdict == "proved"
    for number in (0, 7, 9 << 32):
        assert run(body.format(number=number), values).rules == {"named-barrier"}


@pytest.mark.parametrize(
    "first",
    [
        Scalar("low", "u32", None),
        Pointer("a", 256),
        Map("a", "u32", (32, 32), (128,), (32, 32)),
    ],
)
def test_bytes_of_what_is_not_known_are_not_known(first: Parameter) -> None:
    """A number that is not given, part of an address, the end of a tensor map and more: whatever
    the struct has at their places."""
    size = {"Scalar": 4, "Pointer": 8, "Map": 128}[type(first).__name__]
    values = {"s": Struct("s", 256, (Field(0, first),), bytes(256))}
    load = "ld.param.u64 %rd1, [s+{at}];\n" + UNLESS.format(number=0)
    assert run(load.format(at=size), values).verdict == "proved"
    unknown = run(load.format(at=size - 4), values)
    assert unknown.verdict == "bounded"
    assert f"byte {size - 4} of s, which the launch description does not say" in unknown.reasons[0]


def test_fields_end_in_their_struct() -> None:
    right = Struct("s", 16, (Field(8, Pointer("a", 256)),), bytes(16))
    assert run("ld.param.u64 %rd4, [s+8];\n", {"s": right}).verdict == "proved"
    wrong = replace(right, fields=(Field(12, Pointer("a", 256)),))
    with pytest.raises(LaunchError, match=r"field at byte 12 ends at byte 20, the struct has 16"):
        run("ld.param.u64 %rd4, [s+8];\n", {"s": wrong})
