"""Division by zero: PTX leaves the number open; a use of it in an active lane is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tilesim as ts
from tilesim import Builder, Program, all_of, any_of, check, select
from tilesim.ir.declarations import GlobalTensor
from tilesim.ir.expr import Expr, Operand

Body = Callable[[Builder, GlobalTensor], object]
_ITERATIONS = 3000


def program(body: Body, grid: int = 1) -> Program:
    """A kernel of one warp per CTA and a tensor of as many words as there are lanes."""
    k = Builder("division", warps=1)
    k.launch(grid=grid)
    body(k, k.tensor("out", ts.s32, (grid, 64)))
    return k.finish()


def quotient(k: Builder) -> Expr:
    """Of which lane 3 divides by zero."""
    return 7 // (k.lane_id - 3)


def own(k: Builder, out: GlobalTensor, value: Operand) -> None:
    """Each lane stores a word."""
    k.mem.store(out[k.cta_x, k.lane_id], value)


# ------------------------------------------------------------------ used


def stored(k: Builder, out: GlobalTensor) -> None:
    own(k, out, quotient(k))


def remainder(k: Builder, out: GlobalTensor) -> None:
    own(k, out, 7 % (k.lane_id - 3))


def of_one_divisor(k: Builder, out: GlobalTensor) -> None:
    n = k.var("n", k.cta_x)
    own(k, out, k.lane_id // n)


def through_registers(k: Builder, out: GlobalTensor) -> None:
    q = k.var("q", quotient(k))
    r = k.var("r", q + 1)
    own(k, out, 0)
    own(k, out, -r)


def set_by_half_of_the_lanes(k: Builder, out: GlobalTensor) -> None:
    q = k.var("q", dtype=ts.s32)
    with k.if_(k.lane_id < 16):
        k.assign(q, quotient(k))
        own(k, out, q)


def addressed(k: Builder, out: GlobalTensor) -> None:
    q = k.var("q", quotient(k))
    k.mem.store(out[k.cta_x, (q & 1) + k.lane_id], 1)


def branched_on(k: Builder, out: GlobalTensor) -> None:
    q = k.var("q", quotient(k))
    with k.if_(q > 2):
        own(k, out, 1)


def bound_of_a_loop(k: Builder, out: GlobalTensor) -> None:
    n = k.var("n", k.cta_x)
    with k.loop(7 // n):
        own(k, out, 1)


def chosen(k: Builder, out: GlobalTensor) -> None:
    own(k, out, select(k.lane_id > 2, quotient(k), 0))


def condition_of_a_select(k: Builder, out: GlobalTensor) -> None:
    own(k, out, select(quotient(k) > 0, 1, 0))


def not_cut_short(k: Builder, out: GlobalTensor) -> None:
    own(k, out, all_of(k.lane_id < 9, quotient(k) > 0))


def divisor_is_open(k: Builder, out: GlobalTensor) -> None:
    own(k, out, 7 // any_of(quotient(k) > 0, k.lane_id.ne(3)))


def kept_in_one_lane(k: Builder, out: GlobalTensor) -> None:
    q = k.var("q", quotient(k))
    with k.if_(k.lane_id < 3):
        k.assign(q, 5)
    own(k, out, q)


def shuffled(k: Builder, out: GlobalTensor) -> None:
    q, r = k.var("q", quotient(k)), k.var("r", 0)
    k.mem.shuffle(r, q, 3)
    own(k, out, r)


def in_the_last_turn(k: Builder, out: GlobalTensor) -> None:
    q = k.var("q", quotient(k))
    with k.loop(_ITERATIONS) as turn:
        own(k, out, select(turn.eq(_ITERATIONS - 1), q, 0))


def after_many_turns(k: Builder, out: GlobalTensor) -> None:
    """Assignments in a row have become one step by then."""
    q, r, s = k.var("q", 0), k.var("r", 0), k.var("s", 0)
    with k.loop(100) as turn:
        k.assign(q, 64 // (turn - 50))
        k.assign(r, q + 1)
        k.assign(s, r + 1)
        with k.if_(turn.eq(50)):
            own(k, out, s)


def handed_on(k: Builder, out: GlobalTensor) -> None:
    """All registers hold the same number from the start, and one after the other an open one."""
    q, chain = k.var("q", select(k.cta_x.eq(0), 0, 7)), [k.var(f"r{n}", 0) for n in range(9)]
    k.assign(q, 0 // q)
    with k.loop(_ITERATIONS) as turn:
        own(k, out, turn)
        for register, before in zip(chain[:0:-1], chain[-2::-1], strict=True):
            k.assign(register, before)
        k.assign(chain[0], q)
    own(k, out, chain[-1])


# ------------------------------------------------------------------ thrown away


def masked_out(k: Builder, out: GlobalTensor) -> None:
    q = k.var("q", quotient(k))
    k.mem.store(out[k.cta_x, (q & 0) + k.lane_id], 7 // any_of(q > 0, 1))


def not_chosen(k: Builder, out: GlobalTensor) -> None:
    own(k, out, select(k.lane_id.ne(3), quotient(k), 0))


def register_not_chosen(k: Builder, out: GlobalTensor) -> None:
    q = k.var("q", quotient(k))
    r = k.var("r", q + 1)
    own(k, out, select(k.lane_id.ne(3), r, 0))


def one_number_not_chosen(k: Builder, out: GlobalTensor) -> None:
    n = k.var("n", k.cta_x)
    k.mem.store(out[k.cta_x, select(n.ne(0), 64 // n, 5) + 0 * k.lane_id], 1)


def guarded(k: Builder, out: GlobalTensor) -> None:
    q = k.var("q", quotient(k))
    with k.if_(k.lane_id.ne(3)):
        own(k, out, q)


def divided_where_guarded(k: Builder, out: GlobalTensor) -> None:
    with k.if_(k.lane_id.ne(3)):
        own(k, out, quotient(k))


def cut_short(k: Builder, out: GlobalTensor) -> None:
    own(k, out, all_of(k.lane_id.ne(3), quotient(k) > 0))
    own(k, out, any_of(k.lane_id.eq(3), quotient(k) > 0))


def overwritten(k: Builder, out: GlobalTensor) -> None:
    q = k.var("q", quotient(k))
    with k.if_(k.lane_id < 4):
        k.assign(q, 5)
    own(k, out, q)


def read_over(k: Builder, out: GlobalTensor) -> None:
    x = k.shared("x", ts.s32, (32,))
    q = k.var("q", quotient(k))
    k.mem.store(x[k.lane_id], 1)
    k.mem.load(q, x[k.lane_id])
    own(k, out, q)


def data_that_nobody_looks_at(k: Builder, out: GlobalTensor) -> None:
    counts = k.tensor("counts", ts.s32, (32,))
    n = k.var("n")
    k.mem.load(n, counts[k.lane_id])
    own(k, out, 7 // n)


def what_is_made_of_data(k: Builder, out: GlobalTensor) -> None:
    counts = k.tensor("counts", ts.s32, (32,))
    n = k.var("n")
    k.mem.load(n, counts[k.lane_id])
    m = k.var("m", n + 1)
    own(k, out, 7 // m)


def shuffled_from_another_lane(k: Builder, out: GlobalTensor) -> None:
    q, r = k.var("q", quotient(k)), k.var("r", 0)
    k.mem.shuffle(r, q, 4)
    own(k, out, r)


def turns_without_it(k: Builder, out: GlobalTensor) -> None:
    q = k.var("q", quotient(k))
    with k.loop(_ITERATIONS) as turn:
        own(k, out, select(turn.eq(_ITERATIONS), q, 0))


USED = (
    stored, remainder, of_one_divisor, through_registers, set_by_half_of_the_lanes, addressed,
    branched_on, bound_of_a_loop, chosen, condition_of_a_select, not_cut_short, divisor_is_open,
    kept_in_one_lane, shuffled, in_the_last_turn, after_many_turns, handed_on,
)  # fmt: skip
THROWN_AWAY = (
    masked_out, not_chosen, register_not_chosen, one_number_not_chosen, guarded,
    divided_where_guarded,
    cut_short, overwritten, read_over, data_that_nobody_looks_at, what_is_made_of_data,
    turns_without_it, shuffled_from_another_lane,
)  # fmt: skip


#: what uses it, where that is no store
OTHERS: dict[Body, str] = {
    branched_on: "control flow",
    bound_of_a_loop: "control flow",
}


@pytest.mark.parametrize("body", USED)
def test_used(body: Body) -> None:
    report = check(program(body))
    (finding,) = report.findings
    assert (report.verdict, finding.rule) == ("unsupported", "unsupported")
    in_all = of_one_divisor, bound_of_a_loop, after_many_turns, handed_on, shuffled
    lane = 0 if body in in_all else 3
    assert f"lane {lane} uses the quotient or remainder of a division by zero" in finding.message
    user = OTHERS.get(body, "st")
    assert finding.message.startswith(f"{user}: ")
    in_own = user == "st" and body is not addressed
    assert finding.locations[0].function == ("own" if in_own else body.__name__)


@pytest.mark.parametrize("body", THROWN_AWAY)
def test_thrown_away(body: Body) -> None:
    assert check(program(body)).verdict == "proved"


@pytest.mark.parametrize("body", THROWN_AWAY)
def test_thrown_away_before_an_arrival_too_few(body: Body) -> None:
    """Nothing is said of the quotient, and the wait is reached, which one arrival does not end."""

    def waits(k: Builder, out: GlobalTensor) -> None:
        bar = k.mbarriers("bar")
        with k.one_thread():
            k.mbarrier.init(bar, 33)
        k.sync_warp()
        body(k, out)
        k.mbarrier.arrive(bar)
        k.mbarrier.wait(bar, 0)

    report = check(program(waits))
    assert report.verdict == "failed"
    assert report.rules == {"deadlock"}
    assert [p.loc.function for p in report.findings[0].participants] == ["waits"]


@pytest.mark.parametrize("grid", [8, 200])
def test_one_cta_of_a_grid(grid: int) -> None:
    """One that is no representative of others divides by zero."""

    def by(cta: int) -> Body:
        return lambda k, out: own(k, out, 7 // (k.cta_x - cta))

    def kept_by(cta: int) -> Body:
        return lambda k, out: own(k, out, 1 + k.var("q", 7 // (k.cta_x - cta)))

    for body in by, kept_by:
        assert check(program(body(grid - 2), grid)).verdict == "unsupported"
        assert check(program(body(grid), grid)).verdict == "proved"


def drawn(*, draws: bool = True, acts: int = 1) -> Program:
    """Two warps draw numbers into a register that held a quotient, or only one of them; one that
    draws ``acts`` or more stores a word."""
    k = Builder("drawn", warps=2)
    count, data = k.tensor("count", ts.s32, (1,)), k.tensor("data", ts.s32, (1,))
    t = k.var("t", 7 // (k.lane_id & 1))
    for own in (0, 1):
        with k.role(f"warp{own}", own), k.if_(k.lane_id.eq(0)):
            if draws or own:
                k.mem.atomic(count[0], "add", 1, result=t, sem="acq_rel", scope="gpu")
            with k.if_(t >= acts):
                k.mem.store(data[0], own)
    return k.finish()


def test_a_number_that_is_drawn_takes_the_place_of_a_quotient() -> None:
    """Also in orders in which a warp waits to take its ticket."""
    assert check(drawn()).verdict == "proved"
    both = check(drawn(acts=0))
    assert both.rules == {"race"}
    assert {p.role for p in both.findings[0].participants} == {"warp0", "warp1"}
    (used,) = check(drawn(draws=False)).findings
    assert used.rule == "unsupported"
    assert "lane 0 uses the quotient or remainder of a division by zero" in used.message
    assert [p.role for p in used.participants] == ["warp0"]
