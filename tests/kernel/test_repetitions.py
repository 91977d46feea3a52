"""Repetitions that a certificate leaves out, and claims of them that are not believed."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest

import tilesim as ts
from tests.kernel.programs_repetitions import REPEATED, Repeated
from tests.kernel.random_loops import judged
from tilesim import Builder, bf16, ds, u32
from tilesim.checker.certificates import MOST_CLUSTERS, Proposal, certified, proposed
from tilesim.ir.mir import Mir
from tilesim.proof import machine, memory, order, phases, tensor_memory
from tilesim.proof.certificate import Repetition
from tilesim.proof.check import certify
from tilesim.transforms.lower import lower

STAGES, TILES, ROWS, COLUMNS = 2, 40, 16, 64


@ts.kernel(warps=2)
def copy(
    k: Builder, *, tiles: int = TILES, keeps: int = -1, early: int = -1, rows: int = TILES
) -> None:
    """Copies X to Y by tiles; in iteration ``keeps`` no stage is given back, and in iteration
    ``early`` it is before it is read; Y has so many ``rows`` of tiles, which later iterations write
    again."""
    x, y = (k.tensor(name, bf16, (TILES * ROWS, COLUMNS)) for name in "XY")
    x_map = k.tensor_map(x, (ROWS, COLUMNS), swizzle=128)
    tile = k.shared("tile", bf16, (STAGES, ROWS, COLUMNS), swizzle=128)
    full, empty = k.mbarriers("full", STAGES), k.mbarriers("empty", STAGES)
    part = k.fragment("part", bf16, (ROWS, COLUMNS))
    with k.one_thread():
        for stage in range(STAGES):
            k.mbarrier.init(full[stage], 1)
            k.mbarrier.init(empty[stage], 1)
    k.sync_threads()
    with k.role("producer", 1), k.elected(), k.loop(tiles) as i:
        k.mbarrier.wait(empty[i % STAGES], ((i // STAGES) & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full[i % STAGES], x_map.box_bytes)
        k.tma.load(x_map, tile[i % STAGES], (i * ROWS, 0), full[i % STAGES])
    with k.role("consumer", 0), k.loop(tiles) as i:
        k.mbarrier.wait(full[i % STAGES], (i // STAGES) & 1)
        with k.elected(), k.if_(i.eq(early)):
            k.mbarrier.arrive(empty[i % STAGES])
        k.tile.load(part, tile[i % STAGES])
        k.tile.store(y[ds(i % rows * ROWS, ROWS), :], part)
        k.sync_warp()
        with k.elected(), k.if_(i.ne(keeps) & i.ne(early)):
            k.mbarrier.arrive(empty[i % STAGES])


CLASSES, LEFT_OUT = proposed(lower(copy.build()))
assert LEFT_OUT is not None
ONE = LEFT_OUT[0][0]
#: what the kernel may say of a wrong program
WRONG = ("refuted", "not covered")


def test_most_iterations_are_left_out() -> None:
    assert str(certify(lower(copy.build()), CLASSES, LEFT_OUT)) == "certified"
    assert ONE.times * ONE.period // (2 * STAGES) >= 5


@pytest.mark.parametrize("iteration", [9, 20, 33, TILES - 1])
@pytest.mark.parametrize("fault", ["keeps", "early"])
def test_a_fault_in_one_iteration_is_not_left_out(fault: str, iteration: int) -> None:
    mir = lower(copy.build(**{fault: iteration}))
    # a stage is missed, or written too early, if a later iteration fills it again
    wrong = iteration < TILES - STAGES
    assert certify(mir).verdict == ("refuted" if wrong else "certified")
    assert certify(mir, CLASSES, LEFT_OUT).verdict in (WRONG if wrong else ("certified",))


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (Repetition(ONE.round, ONE.period, ONE.times + 9), "differs in"),
        (Repetition(ONE.round, ONE.period - 1, 2), "repetition"),
        (Repetition(ONE.round, ONE.period // 2, 2), "repetition"),
        (Repetition(0, ONE.period, 2), "stores"),
        (Repetition(ONE.round, 0, 2), "no such repetition"),
        (Repetition(ONE.round, ONE.period, 0), "no such repetition"),
        (Repetition(ONE.round, ONE.period, 1 << 20), "no such repetition"),
        (Repetition(1 << 40, ONE.period, 1), "no such repetition"),
    ],
)
def test_a_wrong_claim_is_not_believed(claim: Repetition, why: str) -> None:
    answer = certify(lower(copy.build()), CLASSES, [[claim]])
    assert answer.verdict == "not covered"
    assert why in answer.what


def test_two_claims_follow_each_other() -> None:
    later = Repetition(ONE.round, ONE.period, 1)
    mir = lower(copy.build())
    assert "no such repetition" in certify(mir, CLASSES, [[ONE, later]]).what


def test_repetitions_that_write_one_place_are_compared() -> None:
    mir = lower(copy.build(rows=4))
    assert str(certify(mir)) == "certified"
    assert "stores that may be of equal values" in certify(mir, CLASSES, LEFT_OUT).what


@ts.kernel(warps=1)
def grows(k: Builder, *, doubles: bool = False) -> None:
    """What decides is a register that grows by a number, or doubles."""
    s, out = k.shared("s", u32, (32,)), k.tensor("out", u32, (64, 32))
    bar = k.mbarriers("bar", 1)
    with k.one_thread():
        k.mbarrier.init(bar[0], 32)
    k.mem.store(s[k.lane_id], 0)
    k.sync_threads()
    n = k.var("n", 1, u32)
    with k.loop(24) as i:
        k.mbarrier.arrive(bar[0])
        k.mbarrier.wait(bar[0], i & 1)
        k.mem.store(out[i, k.lane_id], n)
        k.assign(n, 2 * n if doubles else n + 1)
        with k.if_(n > 1 << 20):
            k.mbarrier.arrive(bar[0])


def left_out_of(mir: Mir) -> Proposal:
    """Classes and repetitions that the search proposes, of which the kernel believes some."""
    classes, left_out = proposed(mir)
    assert left_out is not None
    assert left_out[0]
    assert str(certify(mir, classes, left_out)) == "certified"
    return classes, left_out


def test_what_decides_has_to_be_known_in_each_repetition() -> None:
    linear, doubling = lower(grows.build()), lower(grows.build(doubles=True))
    classes, left_out = left_out_of(linear)
    assert certify(doubling).verdict == "refuted"
    assert certify(doubling, classes, left_out).verdict != "certified"


@ts.kernel(warps=1)
def piles_up(k: Builder, *, completes: bool = True) -> None:
    """Without ``completes`` each iteration expects bytes in one phase, in which they pile up."""
    bar, done = k.mbarriers("bar", 1), k.mbarriers("done", 1)
    with k.one_thread():
        k.mbarrier.init(bar[0], 1)
        k.mbarrier.init(done[0], 32)
    k.sync_threads()
    with k.loop(300) as i:
        with k.one_thread():
            if completes:
                k.mbarrier.arrive_expect_tx(done[0], 0)
            else:
                k.mbarrier.expect_tx(bar[0], 1 << 12)
                k.mbarrier.arrive(done[0])
        with k.if_(k.lane_id.ne(0)):
            k.mbarrier.arrive(done[0])
        k.mbarrier.wait(done[0], i & 1)


def test_a_state_that_does_not_come_back_is_not_left_out() -> None:
    right, wrong = lower(piles_up.build()), lower(piles_up.build(completes=False))
    classes, left_out = left_out_of(right)
    assert certify(wrong).rule == "T"
    said = certify(wrong, classes, left_out).what
    assert said == "a repetition behind which the state is another one"


@pytest.mark.parametrize("one", REPEATED, ids=lambda one: one.program.__name__)
def test_no_claim_of_iterations_that_differ_is_believed(one: Repeated) -> None:
    wrong, right = one.mir(right=False), one.mir(right=True)
    assert certify(wrong, strict=one.strict).rule == one.breaks
    said = [certify(wrong, None, [[claim]], strict=one.strict) for claim in one.claims]
    assert not any(answer.verdict == "certified" for answer in said)
    assert any(one.why in answer.what for answer in said)
    assert str(certify(right, strict=one.strict)) == "certified"
    certified = (certify(right, None, [[claim]], strict=one.strict) for claim in one.claims)
    assert any(answer.verdict == "certified" for answer in certified)


#: members that decide nothing, follow from others, or never change
NOT_COMPARED = {
    "Machine": {"mir", "program", "operands", "size", "in_cta", "tensors", "globals", "read_only",
                "deciding", "work", "rows_in_lanes", "spins", "steps", "looks", "rounds",
                "until", "most",
                "_executes", "ptx", "_begins", "static", "iterations", "_all_global", "whole",
                "_names",
                "boxes", "within", "repetitions", "any_given", "_moves"},
    "Warp": {"rank", "index", "cluster", "instance", "repetition", "_cta", "differing", "many",
             "jumps_back", "values", "_all", "base", "names", "every"},
    "Group": {"over"},
    "Order": {"ctas", "shared", "_facts", "ptx", "handed", "of_cta"},
    "Memory": {"name", "nbytes", "stored", "asynchronous", "_mark", "by_clusters", "_how",
               "_first", "_end", "_latest", "_entered",
               "_constant", "words", "begins", "_changes", "changed"},
    "Mbarrier": {"ptx"},
    "NamedBarrier": {"name"},
    "ClusterBarrier": set(),
    "Pool": set(),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [machine.Machine, machine.Warp, machine.Group, order.Order, memory.Memory, phases.Mbarrier,
     phases.NamedBarrier, phases.ClusterBarrier, tensor_memory.Pool],
)  # fmt: skip
def test_a_state_has_all_members(kind: Any) -> None:
    members = {*getattr(kind, "__dataclass_fields__", ())} or _own(kind.__init__, ast.Store)
    assert members - _own(kind.state, ast.Load) == NOT_COMPARED[kind.__name__]


def _own(function: Any, context: type) -> set[str]:
    """The attributes of ``self`` that a method assigns, or reads."""
    tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(function)))
    return {
        node.attr for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, context)
        and isinstance(node.value, ast.Name) and node.value.id == "self"
    }  # fmt: skip


@pytest.mark.parametrize("number", [0, 2, 4, 9, 14])
def test_random_programs_are_certified_with_repetitions_only_if_they_are_whole(number: int) -> None:
    assert not judged(number).wrong


@ts.kernel(warps=1)
def read_behind(k: Builder, *, own: bool = True) -> None:
    """Behind a loop a thread reads what an iteration has written, itself or, if not its ``own``,
    another thread."""
    rows, value = k.tensor("rows", ts.s32, (64, 32)), k.var("value")
    with k.loop(64) as i:
        k.mem.store(rows[i, k.lane_id], i)
        k.sync_threads()
        k.mem.store(rows[i, k.lane_id], i)
    k.mem.load(value, rows[63, k.lane_id if own else 31 - k.lane_id])


def test_what_is_read_behind_a_loop_is_certified_without_leaving_iterations_out() -> None:
    """Accesses of global memory in repetitions are compared as if nothing ordered them."""
    program = read_behind.build()
    left_out = proposed(lower(program))
    assert certify(lower(program), *left_out).rule == "H6"
    made, answer = certified(program, "practice", (), None)
    assert (str(answer), made.repetitions) == ("certified", None)
    _, wrong = certified(read_behind.build(own=False), "practice", (), None)
    assert (wrong.verdict, wrong.rule) == ("refuted", "H6")


@pytest.mark.parametrize("clusters", [MOST_CLUSTERS, MOST_CLUSTERS + 1])
def test_no_repetitions_of_many_clusters_are_looked_for(clusters: int) -> None:
    """What stands for all of them would take longer than to execute them."""
    k = Builder("counts")
    k.launch(grid=clusters, warps=1)
    b = k.mbarriers("b")
    with k.elected():
        k.mbarrier.init(b, 1)
    k.sync_threads()
    with k.loop(40) as i:
        with k.elected():
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, i & 1)
    classes, left_out = proposed(lower(k.finish()))
    assert classes == (tuple(range(clusters)),)
    assert [bool(some) for some in left_out or ()] == [clusters <= MOST_CLUSTERS]
