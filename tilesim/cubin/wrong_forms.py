"""Forms of machine code that versions of ptxas are known to make of PTX that means something else.

A row stands for a defect that was seen: with the kernel that shows it, and the versions of ptxas
that were run on it. A version is affected if what it makes of that kernel has the form.
"""

from __future__ import annotations

from collections.abc import Callable

from tilesim.cubin.operands import Register, parse
from tilesim.cubin.sass import Function, Instruction
from tilesim.records import dataclass


@dataclass(frozen=True)
class WrongForm:
    """A form of an instruction that does not compute what the PTX says.

    ``form`` names it, ``wrong`` says what it does instead, ``ask`` what to write in its place.
    ``first`` and ``last`` are the oldest and newest ptxas that were seen to make it, ``arch`` the
    target for which ``kernel``, a PTX text, shows it. ``source``: by what it is known. ``has`` says
    of an instruction whether it is of the form; None: it is no instruction but an order that is
    lost, which translation validation sees.
    """

    form: str
    wrong: str
    ask: str
    first: str
    last: str
    arch: str
    source: str
    kernel: str
    has: Callable[[Instruction], bool] | None

    @property
    def cuda(self) -> str:
        """The kernel as CUDA C++, for compilers that take no PTX: all of it is inline assembly."""
        body = self.kernel[self.kernel.index("{") :].strip().replace("%", "%%")
        given = body.replace("ld.param.u64 %%d1, [words];", "mov.u64 %%d1, %0;")
        text = "".join(f'    "{line}\\n"\n' for line in given.split("\n"))
        return (
            'extern "C" __global__ void __launch_bounds__(128) shows(unsigned long long words) {\n'
            f'  asm volatile(\n{text}    :: "l"(words));\n}}\n'
        )


@dataclass(frozen=True)
class WrongInstruction:
    """An instruction that has a wrong form."""

    form: WrongForm
    instruction: Instruction

    @property
    def sentence(self) -> str:
        """What is wrong, in words."""
        form = self.form
        return (
            f"{self.instruction} is {form.form}, as ptxas {form.first} to {form.last} makes it "
            f"wrongly: {form.wrong}; {form.ask}"
        )


def known_wrong_forms(function: Function) -> tuple[WrongInstruction, ...]:
    """The instructions of a function that have a form known to be wrong, in the order of places."""
    return tuple(
        WrongInstruction(form, one)
        for one in function.code.values()
        for form in WRONG_FORMS
        if form.has is not None and form.has(one)
    )


def _predicate_of_relu(one: Instruction) -> bool:
    """``VIMNMX.RELU RZ, P0, P0, R2, 0x40, PT``: predicates behind its first result."""
    if one.base not in ("VIMNMX", "UVIMNMX") or "RELU" not in one.modifiers:
        return False
    results = [parse(text) for text in one.operands[1:3]]
    return any(
        isinstance(r, Register) and "P" in r.name and r.name not in ("PT", "UPT") for r in results
    )


def _same_twice(one: Instruction) -> bool:
    """``VIMNMX3 R5, R0, R0, R5, !PT``: two of three operands are one register."""
    if one.base not in ("VIMNMX3", "UVIMNMX3"):
        return False
    operands = [parse(text) for text in one.operands]
    registers = [r for r in operands if isinstance(r, Register) and "P" not in r.name][1:]
    named = [r for r in registers if r.name not in ("RZ", "URZ")]
    return len(named) != len({*named})


_HEAD = """.address_size 64
.visible .entry shows(.param .u64 words) .maxntid 128
{
.reg .b32 %r<12>;
.reg .b64 %d<5>;
.reg .pred %p<3>;
ld.param.u64 %d1, [words];
cvta.to.global.u64 %d2, %d1;
mov.u32 %r1, %tid.x;
mul.wide.u32 %d3, %r1, 8;
add.s64 %d4, %d2, %d3;
ld.global.u32 %r3, [%d4];
"""

WRONG_FORMS = (
    WrongForm(
        "VIMNMX.RELU with a predicate as its result",
        "of max(min(x, 64), 0) == 64 the predicate is also true for other values of x",
        "compare x >= 64 in the source instead",
        "12.5.82",
        "13.3.73",
        "sm_90a",
        "run on an H200: the branch was taken for 5 and 62",
        ".version 8.0\n.target sm_90a\n"
        + _HEAD
        + """.shared .align 8 .b64 bar;
mov.u32 %r2, bar;
min.s32 %r4, %r3, 64;
max.s32 %r5, %r4, 0;
setp.eq.s32 %p1, %r5, 64;
@!%p1 bra L;
mbarrier.arrive.shared::cta.b64 _, [%r2];
L: ret;
}
""",
        _predicate_of_relu,
    ),
    WrongForm(
        "VIMNMX3 with a register twice",
        "of max(max(x, -x), y) the -x is lost",
        "use abs.s32 in place of max(x, -x)",
        "12.8.93",
        "13.3.73",
        "sm_100a",
        "github.com/pytorch/pytorch/issues/190973",
        ".version 8.6\n.target sm_100a\n"
        + _HEAD
        + """ld.global.u32 %r4, [%d4+4];
neg.s32 %r5, %r3;
max.s32 %r6, %r3, %r5;
neg.s32 %r7, %r4;
max.s32 %r8, %r4, %r7;
max.s32 %r9, %r6, %r8;
st.global.u32 [%d4], %r9;
ret;
}
""",
        _same_twice,
    ),
    WrongForm(
        "tcgen05.wait::ld behind a branch",
        "other warps get tensor memory that is still read, as the wait is left out",
        "wait before the branch, or use ptxas 13.0 or later",
        "12.8.93",
        "12.9.86",
        "sm_100a",
        "seen in a GEMM of CuTe DSL's examples",
        ".version 8.6\n.target sm_100a\n"
        + _HEAD
        + """.shared .align 8 .b64 bar;
mov.u32 %r2, bar;
ld.global.u32 %r3, [%d2];
tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r4, %r5}, [%r3];
setp.ne.s32 %p1, %r3, 0;
@%p1 bra L;
tcgen05.wait::ld.sync.aligned;
elect.sync %r6|%p2, -1;
@%p2 mbarrier.arrive.shared::cta.b64 _, [%r2];
L: st.global.u32 [%d4], %r4;
st.global.u32 [%d4+4], %r5;
ret;
}
""",
        None,
    ),
)
