"""What consoles and notebooks show of reports, kernels and programs."""

from __future__ import annotations

import inspect
import linecache
import pydoc
import re
import subprocess
import sys
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest

import tilesim as ts
from docs.generate_api import PAGE, page
from tilesim import Builder
from tilesim.ir.display import Shown
from tilesim.kernels.bugs import arrival_count
from tilesim.kernels.hopper import matmul_v5
from tilesim.report import inline
from tilesim.report.result import Checked
from tilesim.report.text import result_text
from tilesim.strategies import pipeline


@ts.kernel(warps=1)
def meet(k: Builder, *, arrivals: int = 1, bad: str = "") -> None:
    """One arrival on one barrier.

    It is waited for.
    """
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, arrivals)
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)
    if bad:
        raise ValueError(bad)


def framed(thing: Shown) -> str:
    """The page in the frame that a notebook shows."""
    shown = thing._repr_html_() or ""
    found = re.fullmatch(r'<iframe srcdoc="([^"]*)"[^>]*></iframe>', shown)
    assert found, shown[:100]
    return unescape(found[1])


@pytest.mark.parametrize(("arrivals", "verdict"), [(1, "proved"), (2, "failed")])
def test_print_shows_what_check_prints(arrivals: int, verdict: str) -> None:
    report = ts.check(meet(arrivals=arrivals))
    assert str(report) == result_text(Checked("meet", "", report)).rstrip()
    assert str(report).startswith(f"{verdict.upper()} meet")
    assert repr(report).startswith("Report(kernel='meet'")
    said: list[str] = []
    report._repr_pretty_(SimpleNamespace(text=said.append), False)
    assert said == [str(report)]


def test_notebooks_show_a_page_in_a_frame() -> None:
    for thing in (meet(arrivals=2), ts.check(meet(arrivals=2)), ts.check(meet)):
        shown = framed(thing)
        assert shown.startswith("<!DOCTYPE html>")
        assert "<code>meet</code>" in shown
    assert "deadlock: " in framed(meet(arrivals=2))
    assert "<svg" in framed(meet)
    assert "k.mbarrier.wait(b, 0)" in framed(meet(arrivals=2))


@pytest.mark.parametrize("name", ["short_pipeline", "contiguous_load", "matmul"])
def test_what_a_notebook_keeps_is_small(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures that there is no room for are left out, and what was found stays."""
    kernel = {
        "short_pipeline": arrival_count.short_pipeline,
        "contiguous_load": arrival_count.contiguous_load,
        "matmul": matmul_v5.matmul,
    }[name]
    small = kernel._repr_html_() or ""
    assert len(small) < 30_000
    monkeypatch.setattr(inline, "_MOST", 0)
    least = framed(kernel)
    assert "<svg" not in least
    verdict = ts.check(kernel).verdict
    assert f">{verdict}</span>" in unescape(small)
    assert f">{verdict}</span>" in least


CELL = "/tmp/ipykernel_1/1428200576.py"
LINES = [
    "@ts.kernel(warps=1)\n",
    "def meet(k):\n",
    "    b = k.mbarriers('b')\n",
    "    with k.one_thread():\n",
    "        k.mbarrier.init(b, 2)\n",
    "        k.mbarrier.arrive(b)\n",
    "        k.mbarrier.wait(b, 0)\n",
]


def test_lines_of_a_notebook_are_those_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell is compiled as a file that is not there; IPython knows which one it is."""

    def name(file: str) -> tuple[str, str] | None:
        return ("Cell", "In[3]") if file == CELL else None

    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=name))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(linecache.cache, CELL, (99, None, LINES, CELL))
    variables: dict[str, Any] = {"ts": ts}
    exec(compile("".join(LINES), CELL, "exec"), variables)
    for shown in (str(ts.check(variables["meet"])), framed(variables["meet"])):
        assert "Cell In[3]:5" in shown
        assert "k.mbarrier.init(b, 2)" in shown
        assert "ipykernel" not in shown
    repaired = ts.check(variables["meet"], suggest=1.0).repairs
    assert repaired is not None
    assert {c.patch.file for r in repaired.found for c in r.changes if c.patch} == {"Cell In[3]"}


def test_a_kernel_that_cannot_be_checked_is_shown_too() -> None:
    @ts.kernel(warps=1)
    def empty(k: Builder) -> None:
        """Nothing."""

    assert "kernel empty has no instructions" in framed(empty)


def test_help_has_the_kernels_own_text() -> None:
    text = pydoc.plain(pydoc.render_doc(meet))
    for part in ("One arrival on one barrier.", "It is waited for.", "arrivals=1", "bad=''"):
        assert part in text
    assert "A kernel family" not in text
    signature = inspect.signature(meet)
    assert list(signature.parameters) == ["arrivals", "bad"]
    assert signature.parameters["arrivals"].default == 1


def test_dir_has_the_public_names() -> None:
    assert set(dir(ts)) == {*ts.__all__, "__version__"}
    for name in ts.__all__:
        assert getattr(ts, name) is not None


@pytest.mark.parametrize("name", ["check", "simulate", "replay"])
def test_a_kernel_is_taken_for_its_program(name: str) -> None:
    function = getattr(ts, name)
    more = {"witness": ts.check(meet(arrivals=2)).witness} if name == "replay" else {}
    subject = ts.Kernel("meet", lambda k: meet.function(k, arrivals=2), "sm_90a", 1, {})
    assert {f.rule for f in function(subject, **more).findings} == {"deadlock"}
    made = pipeline("multicast", stages=1, trips=1, ctas=2, consumers=1)
    with pytest.raises(ts.UsageError, match=r"got # Multicast\(.*\); pass its .program$"):
        function(made, **more)
    with pytest.raises(ts.UsageError, match="expected a kernel or a program, got <function"):
        function(meet.function, **more)


def test_explain() -> None:
    assert ts.explain("deadlock").startswith("deadlock\n")
    assert "deadlock" in ts.explain()
    with pytest.raises(ts.UsageError, match="did you mean deadlock"):
        ts.explain("deadlok")


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page(), "run python -m docs.generate_api"


def test_importing_the_package_loads_no_simulator() -> None:
    code = (
        "import sys, tilesim; print([m for m in ('numpy', 'simpy', 'click') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n"
