"""Memory that no buffer has and no CTA shares: constants, variables, arguments of functions."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import FIRST, HEAD, INIT, WAIT
from tilesim.checker import Report, check
from tilesim.ir.mir import Mir
from tilesim.proof.check import certify
from tilesim.ptx.launch import Contents, Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import LaunchError, Unsupported

MODULE = (
    ".const .align 4 .b8 table[8] = {1, 0, 0, 0, 7, 0, 0, 0};\n.const .align 4 .u32 unset[2];\n"
    ".global .align 4 .u32 counter;\n.global .align 4 .u32 each[64], spare[2];\n"
    ".extern .func (.param .b32 r) vprintf"
    "(.param .b64 f, .param .b64 a);\n.func (.param .b32 r) twice(.param .b32 a)\n{\n"
    ".reg .b32 %r<3>;\nld.param.b32 %r1, [a]; add.s32 %r2, %r1, %r1; st.param.b32 [r], %r2;\n"
    "ret;\n}\n.func sets(.param .b64 p)\n{\n"
    ".reg .b64 %a;\nld.param.b64 %a, [p]; st.u32 [%a], 3; ret;\n}\n"
)
ENDS = f"@%p3 ret;\n{INIT}{WAIT}"


def kernel(
    body: str, *, warps: int = 1, grid: int = 1,
    variables: tuple[tuple[str, Contents | None], ...] = (),
) -> Mir:  # fmt: skip
    """A kernel with the variables and functions above."""
    before, entry = HEAD.format(params=".param .u64 a").split(".visible")
    text = f"{before}{MODULE}.visible{entry}{body}\nret;\n}}\n"
    module = read(text, "k.ptx")
    launch = Launch("k", (grid, 1, 1), (32 * warps, 1, 1), params=(Pointer("a", 4096),),
                    dynamic_shared=1024, variables=variables)  # fmt: skip
    return lower(module, module.entries[0], launch)


def run(
    body: str, *, warps: int = 1, grid: int = 1,
    variables: tuple[tuple[str, Contents | None], ...] = (),
) -> Report:  # fmt: skip
    """The report on one."""
    return check(kernel(body, warps=warps, grid=grid, variables=variables))


START = FIRST + MODULE.count("\n")


def test_constants_that_somebody_else_sets_are_not_known() -> None:
    found = run(f"ld.const.u32 %r3, [unset+4];\nsetp.eq.u32 %p3, %r3, 7;\n{ENDS}")
    assert found.verdict == "failed" or "unset" in found.reasons[0]


READS = "ld.const.u32 %r3, [table+4];\nsetp.eq.u32 %p3, %r3, 7;\n"


#: stores to one place of the variable NAME in the space SPACE, through a generic address, with what
#: nothing reads them by afterwards: of a constant, what is loaded is known before the kernel runs
STORES = {
    "a store": "st.u32 [%rd2+4], 8;",
    "an atomic": "atom.add.u32 %r4, [%rd2+4], 8;",
    "of one lane": "mov.u32 %r2, %tid.x; setp.eq.u32 %p2, %r2, 29; @%p2 st.u32 [%rd2+4], 8;",
    "a store and a load": "st.u32 [%rd2+4], 8; bar.warp.sync -1; ld.SPACE.u32 %r3, [NAME+4];",
    "of one turn": (
        "mov.u64 %rd3, counter; cvta.global.u64 %rd3, %rd3; mov.u32 %r5, 0; T: setp.eq.u32 %p2, "
        "%r5, 237; selp.u64 %rd4, %rd2, %rd3, %p2; mov.u32 %r2, %tid.x; setp.eq.u32 %p3, %r2, 0; "
        "@%p3 st.u32 [%rd4], 8; bar.sync 0; add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 400; "
        "@%p4 bra T;"
    ),
    "of one CTA": (
        "mov.u64 %rd3, each; cvta.global.u64 %rd3, %rd3; mov.u32 %r5, %ctaid.x; mul.wide.u32 %rd5, "
        "%r5, 4; add.u64 %rd3, %rd3, %rd5; setp.eq.u32 %p2, %r5, 37; selp.u64 %rd4, %rd2, %rd3, "
        "%p2; mov.u32 %r2, %tid.x; setp.eq.u32 %p3, %r2, 0; @%p3 st.u32 [%rd4], 8;"
    ),
}


@pytest.mark.parametrize("name", STORES)
def test_constants_are_read_only_by_whatever_address(name: str) -> None:
    """Stores to constants are illegal (PTX 9.7.9.11); to a variable in global memory they are not,
    and neither are loads of constants through a generic address."""
    start = "mov.u64 %rd1, NAME; cvta.SPACE.u64 %rd2, %rd1;\n"
    grid = 64 if "CTA" in name else 1

    def of(variable: str, space: str) -> Report:
        body = (start + STORES[name]).replace("NAME", variable).replace("SPACE", space)
        return run(body, grid=grid)

    assert of("spare", "global").verdict == "proved"
    wrong = of("table", "const")
    assert wrong.verdict == "failed", wrong
    assert wrong.rules == {"noncoherent-load"}
    (participant,) = wrong.findings[0].participants
    assert participant.loc.line == START + 1
    assert participant.cta == (37 if grid > 1 else 0)


@pytest.mark.parametrize("said", [None, Contents("u32", (0,))])
def test_what_the_launch_does_not_say_of_a_constant_nobody_knows(said: Contents | None) -> None:
    found = run(READS + ENDS, variables=(("table", said),))
    assert found.rules == {"deadlock"}
    assert f"if the threads go on at k.ptx:{START + 2}, where data may end them" in found.covers


def test_variables_that_are_not_there_or_too_small_are_errors() -> None:
    for name, what in (("tabel", r"no such variable \(did you mean table"), ("table", "36 bytes")):
        with pytest.raises(LaunchError, match=rf"variables.{name}: .*{what}"):
            run(READS + ENDS, variables=((name, Contents("u32", (0,) * 9)),))


def test_what_prints_does_nothing_and_says_nothing() -> None:
    body = (
        ".local .align 8 .b8 depot[8];\nmov.u64 %rd1, depot; cvta.local.u64 %rd2, %rd1;\n"
        "{ .param .b64 f; .param .b64 x; .param .b32 y; st.param.b64 [f], 0; "
        "st.param.b64 [x], %rd2; call.uni (y), vprintf, (f, x); ld.param.b32 %r3, [y]; }\n"
    )
    assert run(body).verdict == "proved"
    steers = run(f"{body}setp.eq.u32 %p3, %r3, 1;\n@%p3 ret;\nbar.warp.sync -1;")
    assert steers.verdict == "bounded"


def test_an_argument_in_pieces_is_refused_with_its_line() -> None:
    halves = "st.param.b32 [x], 0; st.param.b32 [x+4], 0;"
    with pytest.raises(Unsupported) as caught:
        run(f"{{ .param .b64 x;\n{halves}\nld.param.b64 %rd1, [x]; }}")
    assert caught.value.line == START + 2


OWN = (
    ".local .align 8 .b8 own[64]; mov.u64 %rd10, own; cvta.local.u64 %rd11, %rd10; "
    "mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [a]; mul.wide.u32 %rd2, %r2, 4; "
    "add.u64 %rd3, %rd1, %rd2; ld.global.u32 %r20, [%rd3]; setp.gt.s32 %p5, %r20, 5; "
    "setp.lt.u32 %p1, %r2, 16; mov.u32 %r9, 0;\n"
)
#: wrong ones, each with its right twin
UNWRITTEN = {
    "nothing": ("", "st.local.u32 [own], 3;", "ld.local.u32 %r9, [own];"),
    "other bytes": ("st.local.u32 [own+4], 3;", "st.local.u32 [own], 3;", "ld.u32 %r9, [%rd11];"),
    "half": ("st.u16 [%rd11+2], 3;", "st.u32 [%rd11], 3;", "ld.local.u32 %r9, [own];"),
    "in some lanes": ("@%p1 st.local.u32 [own], 3;", "st.local.u32 [own], 3;",
                      "ld.local.u32 %r9, [own];"),
    "in one turn": (
        "st.local.u32 [own], 3;", "st.local.v2.u32 [own], {%r2, %r2};",
        "mov.u32 %r5, 0; T: setp.eq.u32 %p2, %r5, 237; selp.u64 %rd4, 4, 0, %p2; "
        "add.u64 %rd4, %rd4, %rd10; ld.local.u32 %r9, [%rd4]; add.u32 %r5, %r5, 1; "
        "setp.lt.u32 %p2, %r5, 400; @%p2 bra T;",
    ),
}  # fmt: skip
#: the same where data decides: a right one, and what of it is left out in a wrong one
DECIDED = {
    "a way": ("@!%p5 bra D; st.local.u32 [own], 3; ld.local.u32 %r9, [own]; D:",
              "st.local.u32 [own], 3;"),
    "both ways": ("@!%p5 bra D; st.global.u32 [%rd3], 1; st.local.u32 [own], 3; bra F; "
                  "D: st.local.u32 [own], 4; F: ld.local.u32 %r9, [own];",
                  "st.local.u32 [own], 4;"),
    "turns": ("mov.u32 %r5, 0; T: st.local.u32 [own], %r5; ld.local.u32 %r6, [own]; "
              "add.u32 %r9, %r9, %r6; add.u32 %r5, %r5, 1; setp.lt.s32 %p2, %r5, %r20; "
              "@%p2 bra T;", "st.local.u32 [own], %r5;"),
}  # fmt: skip
END = "\nst.global.u32 [%rd3], %r9;"


@pytest.mark.parametrize("name", UNWRITTEN)
@pytest.mark.parametrize("grid", [1, 300])
def test_a_thread_loads_what_it_has_stored_of_its_own(name: str, grid: int) -> None:
    wrong, right, load = UNWRITTEN[name]
    end = END if grid == 1 else ""
    assert run(f"{OWN}{wrong}\n{load}{end}", grid=grid).rules == {"uninitialised-read"}
    assert run(f"{OWN}{right}\n{load}{end}", grid=grid).verdict == "proved"


@pytest.mark.parametrize("name", UNWRITTEN)
def test_the_proof_kernel_asks_what_a_thread_has_stored(name: str) -> None:
    wrong, right, load = UNWRITTEN[name]
    refused, held = (certify(kernel(f"{OWN}{b}\n{load}{END}")) for b in (wrong, right))
    assert (refused.verdict, refused.rule) == ("refuted", "uninitialised")
    assert held.verdict == "certified"


@pytest.mark.parametrize("name", DECIDED)
def test_a_thread_stores_what_is_its_own_on_each_way_to_where_it_loads_it(name: str) -> None:
    right, left_out = DECIDED[name]
    assert run(OWN + right + END).verdict == "proved"
    assert run(OWN + right.replace(left_out, "") + END).verdict in ("bounded", "failed")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("st.u32 [%rd10], 3;", "st.local.u32 [%rd10], 3;"),
        ("st.local.u32 [%rd11], 3;", "st.u32 [%rd11], 3;"),
        ("add.u64 %rd4, %rd11, 4; st.local.u32 [%rd4+-4], 3;",
         "add.u64 %rd4, %rd11, 4; st.u32 [%rd4+-4], 3;"),
        ("cvta.to.local.u64 %rd4, %rd11; st.u32 [%rd4], 3;",
         "cvta.to.local.u64 %rd4, %rd11; st.local.u32 [%rd4], 3;"),
        ("st.u32 [%rd11], 3; ld.global.u32 %r4, [%rd11];", "st.u32 [%rd11], 3;"),
        ("mov.u64 %rd4, table; ld.u32 %r4, [%rd4]; st.u32 [%rd11], %r4;",
         "mov.u64 %rd4, table; ld.const.u32 %r4, [%rd4]; st.u32 [%rd11], %r4;"),
        ("isspacep.global %p2, %rd11; @!%p2 bra X; st.u32 [%rd11], 3; X:",
         "isspacep.shared %p2, %rd11; @%p2 bra X; st.u32 [%rd11], 3; X:"),
    ],
)  # fmt: skip
def test_addresses_of_variables_are_those_of_their_spaces(wrong: str, right: str) -> None:
    """In hardware a generic address of local memory is another number than one in .local."""
    load = "\nld.local.u32 %r9, [own];"
    assert run(f"{OWN}{right}{load}{END}").verdict == "proved"
    with pytest.raises(Unsupported) as caught:
        run(f"{OWN}{wrong}{load}{END}")
    assert caught.value.line == START + 1


def test_an_address_in_32_bits_is_one_of_shared_memory() -> None:
    """That of a variable elsewhere has 64 here; its half was an address in no tensor."""
    with pytest.raises(Unsupported, match=r"the address of own in \.local in 32 bits"):
        run(f"{OWN}mov.u32 %r5, own; st.local.u32 [%r5], 3;")


def test_so_are_those_with_which_a_function_is_called() -> None:
    call = "{ .param .b64 p; st.param.b64 [p], %rdN; call sets, (p); }\nld.local.u32 %r9, [own];"
    assert run(OWN + call.replace("N", "11") + END).verdict == "proved"
    with pytest.raises(Unsupported, match=r"for \.local is used for \.generic"):
        run(OWN + call.replace("N", "10") + END)
