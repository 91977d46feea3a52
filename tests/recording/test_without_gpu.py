"""Torch that is told of a GPU: tensors on "cuda" have shapes and strides, and no memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tilesim.recording.without_gpu import torch_without_gpu

torch: Any = pytest.importorskip("torch", reason="needs torch")


@pytest.fixture(autouse=True)
def _told() -> Iterator[None]:
    with torch_without_gpu("sm_100a"):
        yield


def test_a_copy_from_the_host_leaves_the_tensor_on_the_gpu() -> None:
    there = torch.empty(4, 8, device="cuda")
    assert there.copy_(torch.ones(4, 8)) is there
    assert there.device.type == "cuda"


def test_a_copy_between_tensors_of_the_host_is_made() -> None:
    here = torch.zeros(4, 8)
    assert here.copy_(torch.ones(4, 8)) is here
    assert here.device.type == "cpu"


@pytest.mark.parametrize("place", [{"device": "cuda"}, {}])
def test_a_tensor_of_numbers_is_made_where_it_is_asked_for(place: dict[str, str]) -> None:
    found = torch.tensor([1.0, 2.0], dtype=torch.float16, **place)
    assert found.device.type == place.get("device", "cpu")
    assert (tuple(found.shape), found.dtype) == ((2,), torch.float16)


def test_strides_stay_as_they_are_where_there_is_one_element() -> None:
    """What is at hand says which dimension is the innermost one, also of one element."""
    here = torch.empty(1, 512, 4, 1, 1).permute(1, 4, 3, 2, 0)
    assert here.cuda().stride() == here.stride()


def test_a_part_of_a_tensor_is_packed_on_its_way() -> None:
    here = torch.empty(8, 8)[:, :4]
    assert here.cuda().stride() == (4, 1)


def test_what_a_script_asks_of_the_gpu_is_answered() -> None:
    assert torch.cuda.default_stream().cuda_stream == 0
    assert torch.cuda.get_device_capability() == (10, 0)
