"""``.mir`` files as targets: what they claim about their instructions is not believed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tilesim.ir.text.mir import parse
from tilesim.transforms.rewrite import bare

from . import kernels
from .conftest import Invoke, Write

#: lanes of both arms arrive, and which of them comes first decides what the waiter may read
ARMS = (
    kernels.HEAD
    + """
@ts.kernel(warps=1)
def arms(k):
    x = k.shared("x", ts.s32, (32,))
    b = k.mbarriers("b", 2)
    v = k.var("v")
    with k.one_thread():
        k.mbarrier.init(b[0], 16)
        k.mbarrier.init(b[1], 16)
    k.sync_threads()
    with k.if_(k.lane_id < 16):
        k.mbarrier.arrive(b[0])
        k.mbarrier.wait(b[1], 0)
    with k.else_():
        k.mbarrier.arrive(b[1])
        k.mbarrier.wait(b[0], 0)
"""
)


def listing(tilesim_cli: Invoke, name: str, *options: str) -> str:
    """The machine program of a kernel."""
    result = tilesim_cli("show", name, "--mir", *options)
    assert result.exit_code == 0, result.output
    return result.stdout


def lying(text: str) -> str:
    """A listing whose claims are wrong: that loops only wait, that no two arms synchronise, and
    that counters stay at 0."""
    text = re.sub(r"^(\s*counter \S+).*$", r"\1 in 0, 0", text, flags=re.MULTILINE)
    text = re.sub(r", arms=true|, polls=true|\bcounts ", "", text)
    branch = re.compile(r"(\bbranch \d+(?:, (?:cond|sense)=[^#\n]*?)?)(\s*(?:@.*)?)$", re.MULTILINE)
    return branch.sub(r"\1, polls=true\2", text)


def results(tilesim_cli: Invoke, *names: str) -> list[dict[str, Any]]:
    """What a check of each says, without its name."""
    document = json.loads(tilesim_cli("check", *names, "--format", "json").stdout)
    return [{k: v for k, v in r.items() if k != "kernel"} for r in document["results"]]


@pytest.mark.parametrize(
    ("text", "verdict", "rules"),
    [
        (kernels.GOOD, "proved", []),
        (kernels.BAD, "failed", ["deadlock"]),
        (kernels.RARE, "failed", ["race"]),
        (kernels.OPEN, "bounded", []),
        (ARMS, None, None),
    ],
    ids=["good", "bad", "rare", "open", "arms"],
)
def test_a_listing_is_judged_as_its_kernel_is_whatever_it_claims(
    text: str, verdict: str | None, rules: list[str] | None, write: Write, tilesim_cli: Invoke
) -> None:
    name = write("k.py", text)
    code = listing(tilesim_cli, name, "--locations")
    wrong = lying(code)
    assert wrong != code
    assert bare(parse(wrong)) == bare(parse(code))
    own, plain, lied = results(tilesim_cli, name, write("k.mir", code), write("l.mir", wrong))
    assert plain["findings"] == lied["findings"]
    assert plain["verdict"] == lied["verdict"] == own["verdict"]
    assert [f["locations"] for f in plain["findings"]] == [f["locations"] for f in own["findings"]]
    if verdict is not None:
        assert own["verdict"] == verdict
        assert [finding["rule"] for finding in own["findings"]][:1] == rules


def test_other_commands_take_listings(write: Write, tilesim_cli: Invoke) -> None:
    name = write("k.mir", listing(tilesim_cli, write("k.py", kernels.GOOD)))
    assert tilesim_cli("check", f"{name}::handshake").exit_code == 0
    ran = tilesim_cli("run", name)
    assert ran.exit_code == 0
    assert "no reference to compare with (tensors: out)" in ran.stdout
    assert "and all numbers" in ran.stdout
    assert listing(tilesim_cli, name).startswith("mir 2\n")
    assert tilesim_cli("trace", name).exit_code == 0
    Path("folder").mkdir()
    Path(name).rename("folder/k.mir")
    assert "PROVED folder/k.mir::handshake" in tilesim_cli("check", "folder").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("show", "k.mir"),
            "k.mir::handshake is a program of the machine, which has no other",
        ),
        (("emit", "k.mir"), "k.mir::handshake is a program of the machine, a list of"),
        (("check", "k.mir::other"), "k.mir has no kernel 'other'; it holds handshake"),
        (("check", "k.mir", "--param", "x=1"), "a .mir file holds a finished program"),
        (("check", "cut.mir"), "cut.mir:"),
    ],
)
def test_what_a_listing_cannot_be_used_for(
    arguments: tuple[str, ...], said: str, write: Write, tilesim_cli: Invoke
) -> None:
    text = listing(tilesim_cli, write("k.py", kernels.GOOD))
    write("k.mir", text)
    write("cut.mir", text[: len(text) // 2])
    result = tilesim_cli(*arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert "internal" not in result.output


#: a release by the two elements of a vector
VECTOR = """mir 2

kernel k: target=sm_90a, warps=1
shared flags: s32, {2}  # 0x0..0x8

code {
    roles ""
    in role "" warps 0
    0: branch 3, cond=%thread_id == 0, sense=false
    1: st flags[0x0 + 0x4 * (0)], 7, sem=release, element={0, 2}
    2: st flags[0x0 + 0x4 * (1)], 7, sem=release, element={1, 2}
    3: join
}
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("warps=1", "warps=1, grid={2, 1, 1}, cluster={2, 0, 1}", "cluster"),
        ("{1, 2}", "{1, 9223372036854775808}", "no vector has an element 1 of 9223372036854775808"),
        ("{1, 2}", "{2, 2}", "no vector has an element 2 of 2"),
    ],
)
def test_a_number_that_cannot_be_is_rejected_at_once(
    old: str, new: str, said: str, write: Write, tilesim_cli: Invoke
) -> None:
    right = tilesim_cli("check", write("right.mir", VECTOR))
    assert right.exit_code == 0, right.output
    wrong = tilesim_cli("check", write("wrong.mir", VECTOR.replace(old, new)))
    assert wrong.exit_code in (1, 2)
    assert said in re.sub(r"\s+", " ", wrong.output)
    assert "internal error" not in wrong.output
