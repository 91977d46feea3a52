"""The Promela export: its text, what it leaves out, what it refuses, and the command."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.docs.pages import ROOT, shown_files
from tilesim import Builder, u32
from tilesim.cli import main
from tilesim.errors import UsageError
from tilesim.export import NotExportable, to_promela
from tilesim.export.values import Unknown
from tilesim.ir.expr import Expr

from . import programs
from .expressions import COUNTER, EXPRESSIONS, evaluated, i, run_time, values

GOLDEN = Path(__file__).parent / "golden"


def processes(text: str) -> dict[str, list[str]]:
    """The statements of each process of a model, without comments."""
    found = re.findall(r"active proctype (\w+)\(\) \{\n(.*?)^\}", text, re.DOTALL | re.MULTILINE)
    return {
        name: [re.sub(r"\s*/\*.*?\*/", "", line).strip() for line in body.splitlines()]
        for name, body in found
    }


@pytest.mark.parametrize("name", ["ring", "cluster"])
def test_models_are_what_they_were(name: str) -> None:
    """``python -m tests.export.update`` rewrites the models; read the diff."""
    assert golden(name) == (GOLDEN / f"{name}.pml").read_text()


def golden(name: str) -> str:
    """A model without the lines of this folder, which move."""
    text = to_promela(getattr(programs, name)())
    return re.sub(r"[\w/]*programs\.py:\d+", "programs.py", text)


def test_every_warp_is_a_process_and_copies_are_one_more() -> None:
    found = processes(to_promela(programs.ring(consumers=3)))
    assert list(found) == [*(f"cta0_warp{w}" for w in range(4)), "engine"]
    assert "engine" not in processes(to_promela(programs.carried()))


def test_statements_have_their_places() -> None:
    line = next(
        number
        for number, text in enumerate(Path(programs.__file__).read_text().splitlines(), 1)
        if "k.bulk.load(tiles[stage]" in text
    )
    assert f"programs.py:{line} cp.async.bulk.load */" in to_promela(programs.ring())


def test_loops_stay_loops_and_bytes_are_counted_in_their_unit() -> None:
    short, long = (to_promela(programs.ring(iterations=n)) for n in (4, 64))
    assert long == short.replace("< 4)", "< 64)")
    assert "#define UNIT 128 " in short


def test_data_is_left_out() -> None:
    """A loop that only moves data, its variables, and fences have no counterpart."""
    k = Builder("data", warps=1)
    tensor, word = k.tensor("x", u32, (32,)), k.var("word", 0)
    with k.loop(8) as i:
        k.mem.load(word, tensor[i])
        with k.if_(word > 3):
            k.mem.store(tensor[i], word + 1)
    k.fence.proxy_async()
    k.sync_threads()
    (statements,) = processes(to_promela(k.finish())).values()
    assert [s for s in statements if "v_" in s or s == "do"] == []
    assert len(statements) == 3


def test_clusters_are_models_of_their_own() -> None:
    k = Builder("grid", warps=1)
    k.launch(grid=2)
    with k.loop(k.cta_x + 1):
        k.sync_threads()
    program = k.finish()
    assert "(v_i < 1)" in to_promela(program, 0)
    assert "(v_i < 2)" in to_promela(program, 1)
    with pytest.raises(UsageError, match="2 clusters, there is no cluster 2"):
        to_promela(program, 2)


# ------------------------------------------------------------------ what is refused


def _loaded_condition(k: Builder) -> None:
    x, word = k.tensor("x", u32, (1,)), k.var("word")
    k.mem.load(word, x[0])
    with k.if_(word > 0):
        k.sync_threads()


def _loaded_parity(k: Builder) -> None:
    x, word, b = k.tensor("x", u32, (1,)), k.var("word"), k.mbarriers("b")
    k.mem.load(word, x[0])
    k.mbarrier.wait(b, word)


def _lane_index(k: Builder) -> None:
    b = k.mbarriers("b", 32)
    k.mbarrier.arrive(b[k.lane_id])


def _polling_loop(k: Builder) -> None:
    b, seen, tries = k.mbarriers("b"), k.var("seen", 0), k.var("tries", 0)
    with k.while_(seen.eq(0)):
        k.mbarrier.try_wait(seen, b, 0)
        k.assign(tries, tries + 1)


def _some_lanes_break(k: Builder) -> None:
    with k.loop(3), k.if_(k.lane_id < 4):
        k.break_()


def _divergent_arms(k: Builder) -> None:
    b = k.mbarriers("b")
    with k.if_(k.lane_id < 4):
        k.mbarrier.arrive(b)
    with k.else_():
        k.mbarrier.wait(b, 0)


def _spins_on_memory(k: Builder) -> None:
    x, flag = k.tensor("x", u32, (1,)), k.var("flag", 0)
    with k.while_(flag.eq(0)):
        k.mem.load(flag, x[0], sem="acquire")


def _unset(k: Builder) -> None:
    stage, b = k.var("stage"), k.mbarriers("b", 2)
    with k.loop(2) as i, k.if_(i > 0):
        k.assign(stage, 1)
    k.mbarrier.arrive(b[stage])


def _counter_after_loop(k: Builder) -> None:
    b = k.mbarriers("b", 2)
    with k.loop(2) as i:
        k.sync_threads()
    k.mbarrier.arrive(b[i])


REFUSED: tuple[tuple[Callable[[Builder], None], str, str], ...] = (
    (_loaded_condition, "if (%word > 0)", "it depends on %word, which ld sets at "),
    (_loaded_parity, "mbarrier.wait", "its parity %word depends on %word, which ld sets at "),
    (_lane_index, "mbarrier.arrive", "its index into b lane_id depends on the lane"),
    (_polling_loop, "while (%seen == 0)", "it polls a barrier"),
    (_some_lanes_break, "break", "only some lanes leave the loop"),
    (_divergent_arms, "if (lane_id < 4)", "its lanes act in both arms"),
    (_spins_on_memory, "while (%flag == 0)", "it depends on %flag, which ld sets at "),
    (_unset, "mbarrier.arrive", "depends on %stage, which is not set on every path"),
    (_counter_after_loop, "mbarrier.arrive", "the counter of a loop that has ended"),
)


@pytest.mark.parametrize(
    ("write", "what", "why"), REFUSED, ids=lambda x: getattr(x, "__name__", "")
)
def test_what_cannot_be_exported_is_named_with_its_place_and_reason(
    write: Callable[[Builder], None], what: str, why: str
) -> None:
    k = Builder("refused", warps=1)
    write(k)
    with pytest.raises(NotExportable) as caught:
        to_promela(k.finish())
    error = caught.value
    assert error.what == what
    assert why in error.why
    assert error.loc.function == write.__name__
    assert str(error).startswith(f"{error.loc}: {what} cannot be exported: ")


def test_tensor_memory_and_too_many_processes_are_refused() -> None:
    k = Builder("tmem", target="sm_100a", warps=4)
    slot = k.shared("slot", u32, (1,))
    with k.role("alloc", 0):
        k.tcgen05.alloc(slot[0], 32)
    with pytest.raises(NotExportable, match=r"tcgen05.alloc cannot .*: .*AllocatesTmem"):
        to_promela(k.finish())
    k = Builder("many", warps=32)
    k.launch(grid=8, cluster=8)
    with pytest.raises(NotExportable, match=r"257 processes, SPIN has at most 255"):
        to_promela(k.finish())


# ------------------------------------------------------------------ values


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=str)
def test_ranges_hold_every_value(expr: Expr) -> None:
    low, high = run_time(expr).range
    assert all(low <= value <= high for value in values(expr).values())


@pytest.mark.parametrize(
    ("expr", "why"),
    [
        (i // 0, "not a positive constant"),
        (i // i, "not a positive constant"),
        (1 << (i * 4), "a shift"),
        (i * 1_000_000 * 1_000_000, "32 bits"),
    ],
)
def test_values_that_promela_cannot_compute_are_not_known(expr: Expr, why: str) -> None:
    value = evaluated(expr, COUNTER)
    assert isinstance(value, Unknown)
    assert why in value.why


# ------------------------------------------------------------------ the command


PIPE = """import tilesim as ts


@ts.kernel(warps=1)
def right(k, *, rounds=3):
    with k.loop(rounds):
        k.sync_threads()


@ts.kernel(warps=1)
def steered(k):
    x, word = k.tensor("x", ts.u32, (1,)), k.var("word")
    k.mem.load(word, x[0])
    with k.if_(word > 0):
        k.sync_threads()
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.py").write_text(PIPE)
    return "k.py"


def test_command_writes_the_model(file: str) -> None:
    shown = CliRunner().invoke(
        main, ["export", "--promela", f"{file}::right", "--param", "rounds=5"]
    )
    assert shown.exit_code == 0
    assert "(v_i < 5)" in shown.stdout
    written = CliRunner().invoke(
        main, ["export", "--promela", f"{file}::right[rounds=5]", "-o", "out/right.pml"]
    )
    assert (written.exit_code, written.output) == (0, "")
    assert Path("out/right.pml").read_text() == shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["k.py::right"], "error: name the format to export: --promela\n"),
        (["--promela", "k.py"], "error: k.py has 2 kernels; name one of "),
        (
            ["--promela", "k.py::right", "--cluster", "1"],
            "error: right has 1 cluster, there is no cluster 1",
        ),
        (
            ["--promela", "k.py::steered"],
            "error: k.py:14: if (%word > 0) cannot be exported: it depends on %word, which ld sets "
            "at k.py:13\n",
        ),
    ],
)
def test_command_says_what_is_wrong(file: str, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["export", *arguments])
    assert result.exit_code == 2
    assert result.output.startswith(message)


def test_page_shows_a_process_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    monkeypatch.chdir(tmp_path)
    for name, text in shown_files(page):
        (tmp_path / name).write_text(f"# {name}\n{text}")
    result = CliRunner().invoke(main, ["export", "--promela", "pipe.py::pipe[parity=1]"])
    (excerpt,) = re.findall(r"```promela\n(.*?)```", page, re.DOTALL)
    assert excerpt in result.stdout
