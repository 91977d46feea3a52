"""LITMUS section E: setmaxnreg and the register pool of the CTA."""

from __future__ import annotations

from tilesim import Builder

from .notation import begin, warpgroup
from .table import completes, defect, fails, rejected, row

INC = 'k.setmaxnreg("inc", up)'


# A deadlock of warps that wait for nothing but registers has a rule of its own. In LE10 the pool
# (26624 registers) serves 7 of the 8 warps that ask for 3584 each: one of either group is left.
@row("LE09", completes(), groups=3, registers=168, down=24, up=240)
@row(
    "LE10",
    fails(defect("register-pool", WG2=INC), defect("register-pool", WG3=INC)),
    groups=4,
    registers=128,
    down=24,
    up=240,
)
@row(
    "LE10-no-dec",
    fails(defect("register-pool", WG2=INC, WG3=INC)),
    groups=4,
    registers=128,
    down=None,
    up=168,
)
def give_and_take(k: Builder, *, groups: int, registers: int, down: int | None, up: int) -> None:
    """The first of three, or two of four, warpgroups give registers; the others take them."""
    k.launch(warps=4 * groups, registers=registers)
    givers = groups // 2
    for group in range(groups):
        with warpgroup(k, group):
            if group >= givers:
                k.setmaxnreg("inc", up)
            elif down is not None:
                k.setmaxnreg("dec", down)


@row(
    "LE11",
    fails(defect("deadlock", WG0="k.mbarrier.wait(b, 0)", WG1=INC, WG2=INC)),
    dec_first=False,
)
@row("LE11-dec-first", completes(), dec_first=True)
def take_before_give(k: Builder, *, dec_first: bool, up: int = 240) -> None:
    k.launch(warps=12, registers=168)
    b = k.mbarriers("b")
    begin(k, (b, 256))
    for group in (1, 2):
        with warpgroup(k, group):
            k.setmaxnreg("inc", up)
            k.mbarrier.arrive(b)
    with warpgroup(k, 0):
        if dec_first:
            k.setmaxnreg("dec", 24)
        k.mbarrier.wait(b, 0)
        if not dec_first:
            k.setmaxnreg("dec", 24)


@row("LE12-warps", fails(defect("participation")), warps=3, count=24)
@row("LE12-imm", rejected("register-pool", 'k.setmaxnreg("dec", count)'), warps=4, count=20)
@row(
    "LE12-raise",
    fails(defect("register-pool", WG0='k.setmaxnreg("dec", count)')),
    warps=4,
    count=200,
)
def bad_setmaxnreg(k: Builder, *, warps: int, count: int) -> None:
    k.launch(warps=4, registers=168)
    with k.role("WG0", range(warps)):
        k.setmaxnreg("dec", count)
