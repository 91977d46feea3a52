"""What is found of many accesses to one set of bytes, without a look at all of them."""

from __future__ import annotations

import random
from typing import Any, cast

import numpy as np
import pytest

from tilesim import Builder, Program, s32
from tilesim.checker import check
from tilesim.sim.machine.footprint import Access, Indexed, Records

#: more than are looked at one by one
CTAS = 24


def access(rng: random.Random, number: int | None) -> Access:
    scope = rng.choice([None, "cta", "cluster", "gpu", "sys"])
    found = Access(
        cast("Any", None), cast("Any", None), rng.randrange(6), rng.randrange(100),
        asynchronous=rng.random() < 0.2, write=True, scope=cast("Any", scope),
    )  # fmt: skip
    found.number = number
    return found


@pytest.mark.parametrize("seed", range(8))
def test_all_that_is_asked_for_is_found(seed: int) -> None:
    rng, plain = random.Random(seed), dict[Any, Access]()
    records = Indexed(Records[Any]()) if seed % 2 else Records[Any]()
    for step in range(400):
        if rng.random() < 0.6 or not plain:
            one = access(rng, step if rng.random() < 0.7 else None)
            key = rng.choice([one, rng.randrange(30)]) if one.number is None else one
            records[key] = plain[key] = one
        elif rng.random() < 0.02:
            records.clear()
            plain.clear()
        elif rng.random() < 0.05:
            records.keep(lambda record: record.tick % 3 > 0)
            plain = {key: record for key, record in plain.items() if record.tick % 3}
        else:
            gone = rng.choice([*plain])
            del records[gone], plain[gone]
        assert [*records.items()] == [*plain.items()]
        wide = [r for r in plain.values() if r.scope in ("gpu", "sys") and not r.asynchronous]
        assert {*records.narrow} == {*plain.values()} - {*wide}
        own = rng.sample(range(6), 2)
        found = [*records.at(own)]
        assert len({*found}) == len(found)
        assert {r for r in plain.values() if r.component in own} <= {*found} <= {*plain.values()}
        numbered = [r for r in plain.values() if r.number is not None]
        assert records.numbers == [r.number for r in numbered]
        expected = [(r.number, r.component, r.tick) for r in numbered]
        assert np.array_equal(np.array(records.numbered).T, np.array(expected).reshape(-1, 3))


def counted(*, then: str, who: int) -> Program:
    """All CTAs draw a number; the one that has drawn ``who`` goes on at the word."""
    k = Builder("counted", warps=1)
    k.launch(grid=CTAS)
    count, ticket = k.tensor("count", s32, (1,)), k.var("ticket", 0)
    with k.one_thread():
        k.fence.memory("acq_rel", scope="gpu")
        k.mem.atomic(count[0], "add", 1, result=ticket, scope="gpu")
        k.fence.memory("acq_rel", scope="gpu")
        with k.if_(ticket.eq(who)):
            if then == "stores":
                k.mem.store(count[0], 0)
            else:
                k.mem.atomic(count[0], "add", 1, scope="cta")
    return k.finish()


@pytest.mark.parametrize("then", ["stores", "counts for its CTA alone"])
def test_a_word_that_many_have_counted_at(then: str) -> None:
    """What is not strong for all threads comes after all that the others did there, or races with
    them, of whom none is left out."""
    assert check(counted(then=then, who=0), budget=0, schedules=0).rules == {"race"}
    assert check(counted(then="stores", who=CTAS - 1)).verdict == "proved"
