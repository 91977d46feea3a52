"""Repairs in text, JSON, SARIF and HTML, and on the command line."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

import tilesim as ts
from tilesim.cli import main
from tilesim.ir.loc import Loc
from tilesim.repair import Change, Mendable
from tilesim.report import html, sarif
from tilesim.report.diff import Diff
from tilesim.report.result import Checked
from tilesim.transforms.rewrite import Patch

SOURCE = """
import tilesim as ts


@ts.kernel(warps=2)
def pair(k):
    x = k.shared("x", ts.s32, (1,))
    full = k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 2)
    k.sync_threads()
    with k.role("writer", 0), k.elected():
        k.mem.store(x[0], 1)
        k.mbarrier.arrive(full)
    with k.role("reader", 1):
        value = k.var("value")
        k.mbarrier.wait(full, 0)
        k.mem.load(value, x[0])
"""
LINE = "        k.mbarrier.init(full, 2)"
FIXED = "        k.mbarrier.init(full, 1)"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("pair.py").write_text(SOURCE)
    return "pair.py"


def checked(*options: str) -> str:
    result = CliRunner().invoke(main, ["check", *options])
    assert result.exit_code == 1, result.output
    return result.output


def test_the_text_report_shows_the_line_before_and_after(file: str) -> None:
    text = checked(file, "--suggest=10m")
    repair = text[text.index("  repair ") :]
    assert repair.startswith("  repair    1. count 1 instead of 2 in mbarrier.init (proved)\n")
    assert (
        f"pair.py:10\n              - {LINE.strip()}\n              + {FIXED.strip()}\n" in repair
    )
    assert "edits tried\n" in repair
    assert "repair " not in checked(file)


def test_json_has_instructions_and_patches(file: str) -> None:
    (result,) = json.loads(checked(file, "--suggest=10m", "--format", "json"))["results"]
    repairs = result["repairs"]
    assert repairs["ended"]
    assert repairs["seconds"] == 600
    assert repairs["tried"] >= len(repairs["found"]) > 0
    (change,) = repairs["found"][0]["changes"]
    assert change["before"] == ["mbarrier.init full[0], 2"]
    assert change["after"] == ["mbarrier.init full[0], 1"]
    assert change["patch"] == {
        "file": "pair.py", "first": 10, "last": 10, "old": [LINE], "new": [FIXED],
    }  # fmt: skip


def test_sarif_fixes_are_applied_as_text(file: str) -> None:
    (run,) = json.loads(checked(file, "--suggest=10m", "--format", "sarif"))["runs"]
    fixes = [fix for result in run["results"] for fix in result.get("fixes", ())]
    (change,) = fixes[0]["artifactChanges"]
    assert change["artifactLocation"]["uri"] == "pair.py"
    (replacement,) = change["replacements"]
    region = replacement["deletedRegion"]
    assert (region["startLine"], region["endLine"]) == (10, 11)
    lines = SOURCE.splitlines(keepends=True)
    lines[9:10] = [replacement["insertedContent"]["text"]]
    Path(file).write_text("".join(lines))
    assert CliRunner().invoke(main, ["check", file]).exit_code == 0


def test_the_page_has_a_section(file: str) -> None:
    checked(file, "--suggest=10m", "--html", "page.html")
    page = Path("page.html").read_text()
    assert "<h3>Repairs</h3>" in page
    assert f"+ {FIXED.strip()}" in page


def test_lines_that_stay_are_not_shown_as_changes() -> None:
    def lines(old: tuple[str, ...], new: tuple[str, ...]) -> list[str]:
        change = Change(Loc("k.cu", 2), (), (), Patch("k.cu", 2, 3, old, new))
        return [f"{mark} {line}" for mark, line in change.lines]

    assert lines(("  a;",), ("  b;", "  a;")) == ["+ b;", "  a;"]
    assert lines(("    a;",), ("    a;", "  b;")) == ["    a;", "+ b;"]
    assert lines(("a;", "b;"), ("a;", "c;", "b;")) == ["  a;", "+ c;", "  b;"]
    assert lines(("a;", "a;"), ("a;",)) == ["  a;", "- a;"]
    assert lines(("a;",), ()) == ["- a;"]
    assert lines(("a;",), ("b;",)) == ["- a;", "+ b;"]


def test_what_is_no_patch_is_not_in_sarif() -> None:
    @ts.kernel(warps=1)
    def stuck(k: ts.Builder) -> None:
        done = k.mbarriers("done")
        with k.one_thread():
            init = k.mbarrier.init
            init(done, 2)
        k.sync_threads()
        with k.elected():
            k.mbarrier.arrive(done)
        k.mbarrier.wait(done, 0)

    report = ts.check(stuck.build(), suggest=timedelta(minutes=10))
    assert report.repairs is not None
    (change,) = report.repairs.found[0].changes
    assert change.patch is None
    assert (change.old, change.new) == (
        ("mbarrier.init done[0], 2",),
        ("mbarrier.init done[0], 1",),
    )
    result = Checked("stuck", "sm_90a", report)
    (run,) = json.loads(sarif.render([result]))["runs"]
    fixes = [fix for found in run["results"] for fix in found.get("fixes", ())]
    assert all("mbarrier.init" not in fix["description"]["text"] for fix in fixes)
    assert "- mbarrier.init done[0], 2" in html.render([result])


def diffed(*options: str) -> tuple[str, str]:
    """The diff of a check that fails, and what is said beside it."""
    result = CliRunner().invoke(main, ["check", "--diff", "--suggest=10m", *options])
    assert result.exit_code == 1, result.output
    return result.stdout, result.stderr


def test_a_diff_is_all_that_is_written_and_mends_the_file(file: str) -> None:
    diff, said = diffed(file)
    assert diff.splitlines()[:2] == ["--- a/pair.py", "+++ b/pair.py"]
    assert [line for line in diff.splitlines()[2:] if line[0] in "+-"] == [f"-{LINE}", f"+{FIXED}"]
    assert "pair.py::pair: count 1 instead of 2 in mbarrier.init (proved)\n" in said
    subprocess.run(["patch", "-p1"], input=diff, text=True, check=True, capture_output=True)
    result = CliRunner().invoke(main, ["check", "--diff", file])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "proved" in result.stderr


def test_kernels_of_one_file_are_mended_by_one_diff(file: str) -> None:
    head, kernel = SOURCE.split("@ts", 1)
    Path(file).write_text(f"{head}@ts{kernel}\n\n@ts{kernel.replace('def pair', 'def other')}")
    diff, said = diffed(file, "-o", "fix.diff")
    assert diff == ""
    assert said.count("(proved)\n") == 2
    text = Path("fix.diff").read_text()
    assert text.count("--- a/pair.py\n") == 1
    assert text.count(f"\n+{FIXED}\n") == 2


def test_a_line_that_another_repair_changes_is_left_out_of_a_diff() -> None:
    report = ts.check(stuck(), suggest=600)
    assert report.repairs is not None
    first, *_ = report.repairs.found
    (change,) = first.changes
    assert change.patch is not None
    other = replace(change, patch=replace(change.patch, new=("        pass",)))
    clashing = replace(report.repairs, found=(replace(first, changes=(other,)),))
    without = replace(
        report.repairs, found=(replace(first, changes=(replace(change, patch=None),)),)
    )
    none = replace(report.repairs, found=())
    diff = Diff.of([
        Checked(name, "sm_90a", replace(report, repairs=repairs))
        for name, repairs in (("a", report.repairs), ("same", report.repairs), ("b", clashing),
                              ("c", without), ("d", none))
    ])  # fmt: skip
    assert diff.text().count("@@ ") == 1
    assert diff.notes == [
        "a: count 1 instead of 2 in mbarrier.init (proved)",
        "same: count 1 instead of 2 in mbarrier.init (proved)",
        "b: count 1 instead of 2 in mbarrier.init: not in the diff, which changes these lines "
        "already",
        "c: 1 repair, none of which is a patch of lines",
        "d: no repair found",
    ]


@ts.kernel(warps=1)
def stuck(k: ts.Builder) -> None:
    done = k.mbarriers("done")
    with k.one_thread():
        k.mbarrier.init(done, 2)
    k.sync_threads()
    with k.elected():
        k.mbarrier.arrive(done)
    k.mbarrier.wait(done, 0)


def test_a_diff_is_no_other_format(file: str) -> None:
    result = CliRunner().invoke(main, ["check", "--diff", "--format", "json", file])
    assert result.exit_code == 2
    assert "--diff prints a patch as the report" in result.output


def test_what_follows_the_option_is_no_time() -> None:
    result = CliRunner().invoke(main, ["check", "--suggest", "pair.py"])
    assert result.exit_code == 2
    assert "write the kernels before --suggest" in " ".join(result.output.split())


def test_a_rejected_program_is_mended_too(file: str) -> None:
    Path(file).write_text(SOURCE.replace("init(full, 2)", "init(full, 0)"))
    result = CliRunner().invoke(main, ["check", file, "--suggest=10m", "--format", "json"])
    assert result.exit_code == 2
    (entry,) = json.loads(result.output)["results"]
    assert (entry["verdict"], entry["diagnostics"][0]["rule"]) == ("rejected", "operand")
    best = entry["repairs"]["found"][0]
    assert (best["what"], best["verdict"]) == ("count 1 instead of 0 in mbarrier.init", "proved")
    assert best["changes"][0]["patch"]["new"] == [FIXED]
    text = CliRunner().invoke(main, ["check", file, "--suggest=10m"]).output
    assert "  repair    1. count 1 instead of 0 in mbarrier.init (proved)\n" in text
    log = CliRunner().invoke(main, ["check", file, "--suggest=10m", "--format", "sarif"]).output
    assert json.loads(log)["runs"][0]["results"][0]["fixes"]


def test_what_is_rejected_is_not_mended_by_doing_less() -> None:
    @ts.kernel(warps=1)
    def long(k: ts.Builder) -> None:
        y = k.tensor("y", ts.s32, (4,))
        with k.loop(4) as i:
            k.mem.store(y[i], 1)
        k.bar.sync(1, 65)

    with pytest.raises(Mendable) as caught:
        ts.check(long.build(), suggest=timedelta(minutes=10))
    best = caught.value.repairs.found[0]
    assert best.what == "threads 32 instead of 65 in barrier.sync"
    assert all("trip" not in repair.what for repair in caught.value.repairs.found)
