"""Which tensors a program may write by addresses, and that the kernel looks at each write again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.litmus.notation import global_words, thread
from tilesim import Builder, address_of, u32, u64, view_at
from tilesim.ir.declarations import GlobalTensor, Pointed
from tilesim.ir.expr import Expr
from tilesim.ir.mir import Mir
from tilesim.proof.effects import execute
from tilesim.proof.machine import Machine
from tilesim.proof.operands import Operands
from tilesim.proof.rules import NotCovered
from tilesim.proof.written import may_write
from tilesim.transforms.lower import lower

Address = Callable[[Builder, GlobalTensor, GlobalTensor], Expr]


def _of_the_one(_k: Builder, one: GlobalTensor, _other: GlobalTensor) -> Expr:
    return address_of(one) + 4


def _of_either(k: Builder, one: GlobalTensor, other: GlobalTensor) -> Expr:
    p = k.var("p", address_of(one), u64)
    with k.if_(k.lane_id.eq(0)):
        k.assign(p, address_of(other))
    return p


def _at_an_index_of_the_other(k: Builder, one: GlobalTensor, other: GlobalTensor) -> Expr:
    r = k.var("r", dtype=u32)
    k.mem.load(r, other[0])
    return address_of(one) + 4 * r


def _kept_in_memory(k: Builder, one: GlobalTensor, other: GlobalTensor) -> Expr:
    kept, p = k.shared("kept", u64, (2,)), k.var("p", dtype=u64)
    k.mem.store(kept[0], address_of(one))
    k.mem.store(kept[1], address_of(other))
    k.mem.load(p, kept[0])
    return p


def _from_a_table(k: Builder, _one: GlobalTensor, _other: GlobalTensor) -> Expr:
    p = k.var("p", dtype=u64)
    k.mem.load(p, k.tensor("table", u64, (1,))[0])
    return p


def _program(address: Address) -> Mir:
    k = Builder("k")
    k.launch(warps=1)
    one, other = global_words(k, "one", 32), global_words(k, "other", 32)
    with thread(k, 0):
        k.mem.store(view_at(address(k, one, other), u32, space="global"), 1)
    return lower(k.finish())


@pytest.mark.parametrize(
    ("address", "written"),
    [
        (_of_the_one, {"one"}), (_of_either, {"one", "other"}), (_from_a_table, set()),
        (_at_an_index_of_the_other, {"one"}), (_kept_in_memory, {"one", "other"}),
    ],
)  # fmt: skip
def test_an_address_is_one_in_what_goes_into_it(address: Address, written: set[str]) -> None:
    assert may_write(_program(address)) == written


def test_an_address_may_be_one_that_a_tensor_begins_with() -> None:
    mir = _program(_from_a_table)
    tensors = mir.kernel.tensors
    given = [replace(t, pointers=(Pointed(0, "other"),)) for t in tensors if t.name == "table"]
    others = [t for t in tensors if t.name != "table"]
    kernel = replace(mir.kernel, params=(*others, *given))
    assert may_write(replace(mir, kernel=kernel)) == {"other"}


def test_a_write_that_was_not_seen_is_not_covered() -> None:
    v = Operands(_program(_of_the_one))
    assert v.read_only == {"other"}
    assert [*Machine(v, [0], execute).ends()]
    v.read_only.add("one")
    for clusters in ([0], [0, 1]):  # alone, and with a shadow
        with pytest.raises(NotCovered, match="an address in one that is not seen to be one"):
            [*Machine(v, clusters, execute).ends()]
