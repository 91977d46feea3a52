"""What tables hold that a script makes of integers, with tensors that have no storage."""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack
from typing import Any

import pytest

from tilesim.recording.values import VALUES
from tilesim.recording.without_gpu import torch_without_gpu

torch: Any = pytest.importorskip("torch", reason="needs torch")


@pytest.fixture(autouse=True)
def _told() -> Iterator[None]:
    with torch_without_gpu("sm_90a"):
        yield


def known(tensor: Any) -> bytes | None:
    return VALUES.bytes_of(tensor.untyped_storage())


def test_a_table_is_known_where_it_is_copied() -> None:
    table = torch.tensor([[1, 2], [3, 1 << 40]], dtype=torch.int64)
    there = torch.empty_like(table, device="cuda")
    assert known(there) is None
    there.copy_(table)
    words = pack("<4q", 1, 2, 3, 1 << 40)
    assert [known(t) for t in (table, there, table.cuda(), table.to("cuda"))] == [words] * 4
    assert known(torch.tensor([1, 2], device="cuda", dtype=torch.int32)) == pack("<2i", 1, 2)


def test_types_are_converted() -> None:
    table = torch.tensor([1, 257], dtype=torch.int64)
    assert known(table.to(torch.int32)) == pack("<2i", 1, 257)
    assert known(table.to("cuda", torch.uint8)) == bytes((1, 1))


def test_what_is_written_otherwise_is_not_known() -> None:
    table = torch.tensor([1, 2])
    table.add_(1)
    assert known(table) is None
    table = torch.tensor([1, 2])
    table[0].zero_()
    assert known(table) is None
    there = torch.tensor([1, 2]).cuda()
    there.copy_(torch.empty(2, dtype=torch.int64))
    assert known(there) is None
    VALUES.forget([torch.tensor([3]).untyped_storage()])


def test_data_and_parts_are_not_known() -> None:
    assert known(torch.tensor([1.0, 2.0])) is None
    assert known(torch.tensor([0] * 4000)) is None
    whole = torch.empty(4, dtype=torch.int64, device="cuda")
    whole[:2].copy_(torch.tensor([1, 2]))
    assert known(whole) is None
