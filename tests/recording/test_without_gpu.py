"""Torch that is told of a GPU: tensors on "cuda" have shapes and strides, and no memory."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tilesim.recording.left_out import LeftOut, Unavailable
from tilesim.recording.without_gpu import torch_without_gpu

torch: Any = pytest.importorskip("torch", reason="needs torch")
fake: Any = pytest.importorskip("torch._subclasses.fake_tensor")


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


# ------------------------------------------------------------------ numbers that are read


def test_a_number_that_is_read_is_a_nan_that_decides_nothing() -> None:
    noted: list[LeftOut] = []
    with torch_without_gpu("sm_90a", noted.append):
        out = torch.empty(4, device="cuda")
        loss = out.sum().item()
        assert f"{loss:.2f} {out.sum():.3f} {2 * loss + 1}" == "nan nan nan"
        assert len(out.tolist()) == 4
    assert [one.function.rpartition(".")[2] for one in noted] == ["item", "format", "tolist"]
    line = noted[0].where.rpartition(":")[2]
    for decide in (
        bool,
        int,
        float,
        lambda n: n < 1,
        lambda n: n / 2 == 1,
        lambda n: n in (1.0, 2),
    ):
        with pytest.raises(Unavailable, match=rf"depends on a number .*:{line}: tensors"):
            decide(loss)


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda x: bool((x > 0).all()), "the value of a tensor decides"),
        (lambda x: x.argmax().item(), "item of a tensor of torch.int64"),
        (lambda x: torch.nonzero(x), "the shape of what aten.nonzero gives depends on values"),
        (lambda x: __import__("numpy").abs(x.cpu().numpy()), "an array of NumPy"),
        (lambda x: torch.cuda.current_blas_handle(), "current_blas_handle asks the driver: there"),
    ],
)
def test_what_needs_numbers_is_one_line_that_says_where(read: Any, says: str) -> None:
    with pytest.raises(Unavailable, match=says) as error:
        read(torch.empty(4, device="cuda"))
    where, _, rest = str(error.value).partition(": ")
    assert where.startswith(__file__)
    assert "TILESIM_CAPTURE" in rest
    assert "\n" not in rest


def test_numbers_that_the_script_gave_are_known() -> None:
    sizes = torch.tensor([3, 5])
    assert (sizes.max().item(), sizes.tolist()) == (5, [3, 5])
    assert sizes.cuda().cpu().tolist() == [3, 5]
    assert torch.tensor(2.5).item() == 2.5
    assert torch.tensor([7], device="cuda").item() == 7
    sizes.cuda().add_(1)
    assert sizes.tolist() == [3, 5]
    sizes.copy_(torch.empty(2, dtype=torch.int64, device="cuda"))
    with pytest.raises(Unavailable):
        sizes.tolist()


# ------------------------------------------------------------------ modules, operators, the GPU


def test_a_deep_copy_is_of_the_same_mode() -> None:
    """A second mode frees what the first has: the heap of the process is corrupt then."""
    known, there = torch.tensor(3.0), torch.empty(4, device="cuda")
    module = torch.nn.Linear(4, 4).cuda()
    copies = [*copy.deepcopy([known, there]), copy.deepcopy(module).weight]
    assert {id(of.fake_mode) for of in copies} == {id(there.fake_mode)}
    assert [of.device.type for of in copies] == ["cpu", "cuda", "cuda"]


@pytest.mark.parametrize("place", [{"device": "cuda"}, {}])
def test_a_deep_copy_has_the_values_and_keeps_them(place: dict[str, str]) -> None:
    table = torch.tensor([3, 5], **place)
    first, second = copied = copy.deepcopy([table, table])
    assert first is second is not table
    assert first.tolist() == copy.deepcopy(first).tolist() == [3, 5]
    table.copy_(torch.tensor([1, 2]))
    assert [of.tolist() for of in (table, *copied)] == [[1, 2], [3, 5], [3, 5]]
    first.copy_(torch.tensor([7, 8]))
    assert [of.tolist() for of in (table, first)] == [[1, 2], [7, 8]]


def test_a_deep_copy_that_is_written_otherwise_is_not_known() -> None:
    number = torch.tensor(1.5)
    copied = copy.deepcopy(number)
    copied.copy_(torch.empty(()))
    assert number.item() == 1.5
    with pytest.raises(Unavailable, match="read at"):
        bool(copied.item())


def test_modules_move_and_their_parameters_stay_the_same_objects() -> None:
    for _ in range(5):
        net = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)
        )
        net.register_buffer("scale", torch.ones(8))
        before = [*net.parameters()]
        refs = [weakref.ref(p) for p in before]
        assert net.cuda() is net
        net.half()
        after = [*net.parameters()]
        assert all(a is b is r() for a, b, r in zip(before, after, refs, strict=True))
        assert {(p.device.type, p.dtype) for p in after} == {("cuda", torch.float16)}
        assert net.scale.device.type == "cuda"
    assert net(torch.empty(2, 4, device="cuda", dtype=torch.float16)).shape == (2, 8)
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.empty(2, 4, device="cuda", dtype=torch.float16)).float().mean().backward()
    optimizer.step()
    assert net.to(0)[0].weight.grad.device.type == "cuda"


def test_operators_in_python_are_run_and_others_are_noted() -> None:
    run: list[str] = []
    noted: list[LeftOut] = []
    library = torch.library.Library("tilesim_test", "DEF")
    library.define("low(Tensor x) -> Tensor")
    library.define("far(Tensor x) -> Tensor")

    def high_(x: torch.Tensor) -> torch.Tensor:
        run.append("high")
        return torch.empty_like(x)

    high = torch.library.custom_op("tilesim_test::high", high_, mutates_args=())
    high.register_fake(torch.empty_like)

    def low(x: Any) -> Any:
        run.append("low")
        return torch.empty_like(x)

    library.impl("low", low, "CUDA")
    torch.library.register_fake("tilesim_test::far", torch.empty_like, lib=library)
    with torch_without_gpu("sm_90a", noted.append):
        x = torch.empty(4, device="cuda")
        ops = torch.ops.tilesim_test
        assert [f(x).device.type for f in (high, ops.low, ops.far)] == ["cuda"] * 3
    assert run == ["high", "low"]
    assert [one.function for one in noted] == ["torch.ops.tilesim_test.far"]


def test_streams_events_and_graphs() -> None:
    cuda = torch.cuda
    stream = cuda.Stream(priority=-1)
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        assert cuda.current_stream() is stream
        torch.empty(4, device="cuda").record_stream(stream)
    assert cuda.current_stream() is cuda.default_stream()
    event = stream.record_event()
    assert event.query()
    assert event.elapsed_time(cuda.Event()) == 1.0
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, stream=stream):
        pass
    graph.replay()
    assert cuda.make_graphed_callables(len, ("x",)) is len


def test_compiled_functions_are_run_as_written() -> None:
    noted: list[LeftOut] = []
    with torch_without_gpu("sm_90a", noted.append):
        run: list[int] = []
        torch.compile(run.append)(1)
        torch.compile(mode="max-autotune")(run.append)(2)
        BEFORE(torch.empty(4, device="cuda"))
    assert run == [1, 2]
    assert [one.function for one in noted] == ["torch.compile"] * 3


def _negated(x: Any) -> Any:
    return -x


BEFORE = torch.compile(_negated)


def test_modules_of_before_are_as_they_were() -> None:
    with fake.unset_fake_temporarily():
        net = torch.nn.Linear(4, 4)
        net.register_buffer("scale", torch.ones(4))
    before = [net.weight, net.bias, net.scale]
    with torch_without_gpu("sm_90a"):
        assert {t.device.type for t in net.cuda().half().state_dict().values()} == {"cuda"}
    after = [net.weight, net.bias, net.scale]
    assert all(a is b for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("decide", [lambda x: bool(x.sum() > 0), lambda x: x.sum().item() > 0])
def test_a_test_in_which_a_value_decides_fails_with_one_line(decide: Any) -> None:
    testing = pytest.importorskip("tilesim.triton.testing", reason="needs the triton extra")
    failed: list[str] = []
    with testing.Checks(failed.append).active():
        decide(torch.empty(4, device="cuda"))
    (line,) = failed
    assert line.startswith(f"{__file__}:")
    assert "\n" not in line


@pytest.mark.parametrize(
    "ask",
    [
        "mem_get_info()[0] > 0", "memory_allocated() == 0", "reset_peak_memory_stats() is None",
        "synchronize() is None", "get_rng_state().dtype is torch.uint8", "is_bf16_supported()",
        "get_device_properties().shared_memory_per_block_optin == 232448",
        "nvtx.range_push('x') == 0", "utilization() == 0", "init() is None",
    ],
)  # fmt: skip
def test_questions_about_the_gpu_are_answered(ask: str) -> None:
    assert eval(f"torch.cuda.{ask}", {"torch": torch})


def test_profiles_are_those_of_the_host() -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        torch.empty(4, device="cuda").add_(1)
    assert found.key_averages()


def test_a_generator_of_the_gpu() -> None:
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert torch.rand(3, device="cuda", generator=generator).device.type == "cuda"
