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


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_single_number_is_made_there(shape: tuple[int, ...]) -> None:
    """Its value is known to torch, which would copy it with the driver."""
    found = torch.tensor(1.0, device="cuda").reshape(shape)
    assert (found.device.type, tuple(found.shape)) == ("cuda", shape)
    assert torch.ones(shape).cuda().device.type == "cuda"


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


class Twice(torch.autograd.Function):  # type: ignore[misc]
    """Two results, of which one is not used."""

    @staticmethod
    def forward(ctx: Any, scale: float, x: Any, unused: Any, y: Any) -> Any:
        ctx.save_for_backward(x)
        return x * scale, y + 1

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        assert gradients[0].shape == ctx.saved_tensors[0].shape
        return None, gradients[0], None, gradients[1]


def test_gradients_reach_every_leaf() -> None:
    x = torch.empty(4, 8, device="cuda", dtype=torch.float16, requires_grad=True)
    w = torch.empty(8, 4, device="cuda", dtype=torch.float16, requires_grad=True)
    b = torch.empty(4, device="cuda", requires_grad=True)
    y, _ = Twice.apply(2.0, x @ w + x @ w.detach(), x.detach(), b)
    y.backward(torch.ones_like(y), retain_graph=True)
    found = [(t.grad.shape, t.grad.dtype, t.grad.device.type) for t in (x, w, b)]
    assert found == [(t.shape, t.dtype, "cuda") for t in (x, w, b)]


def test_gradients_of_some_tensors_are_given_back() -> None:
    x = torch.empty(4, 8, device="cuda", requires_grad=True)
    between = x * 2
    other = torch.empty(4, 8, device="cuda", requires_grad=True)
    of_x, of_between, nothing = torch.autograd.grad(
        between.sum(), (x, between, other), allow_unused=True
    )
    assert of_x.shape == of_between.shape == x.shape
    assert nothing is None
    assert x.grad is None


def test_gradients_of_the_host_are_computed() -> None:
    x = torch.ones(3, requires_grad=True)
    (x * x * 3).sum().backward()
    assert x.grad.shape == (3,)
