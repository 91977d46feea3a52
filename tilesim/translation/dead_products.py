"""Instructions of PTX whose only effect is a result that nothing uses: ptxas removes them."""

from __future__ import annotations

from tilesim.ir.frozen import cached
from tilesim.ptx.constants import read_by, set_by
from tilesim.ptx.inline import Kernel

#: kinds of instructions that ptxas removes if no result of them is used
PRODUCTS = frozenset({"wgmma", "tcgen05.ld", "ld.acquire"})
_OPCODES = ("wgmma.mma_async", "tcgen05.ld.", "ld.", "ldu.", "ldmatrix.")
#: instructions without any effect but their result
PURE = frozenset(
    {
        "mov", "add", "sub", "mul", "mad", "fma", "neg", "abs", "min", "max", "cvt", "selp", "setp",
        "and", "or", "xor", "not", "shl", "shr", "prmt", "ex2", "lg2", "rcp", "sqrt", "rsqrt",
        "div", "sin", "cos", "tanh", "bfi", "bfe", "lop3", "shf", "copysign", "set", "slct", "rem",
        "cvta",
    }
)  # fmt: skip


@cached
def dead_products(kernel: Kernel) -> frozenset[int]:
    """The numbers of wgmmas, and of loads of shared, global and tensor memory, of which no result
    can be used: by an instruction with another effect, or by one whose own result can be used."""
    live: set[str] = set()
    pending: list[int] = []
    for number, step in enumerate(kernel.code):
        volatile = "volatile" in step.qualifiers
        only_result = step.base in PURE or (step.opcode.startswith(_OPCODES) and not volatile)
        if only_result and set_by(step):
            pending.append(number)
        else:
            live |= {*read_by(step)}
    changed = True
    while changed:
        rest = []
        for number in pending:
            step = kernel.code[number]
            if live.isdisjoint(register.name for register in set_by(step)):
                rest.append(number)
            else:
                live |= {*read_by(step)}
        changed = len(rest) < len(pending)
        pending = rest
    return frozenset(n for n in pending if kernel.code[n].opcode.startswith(_OPCODES))
