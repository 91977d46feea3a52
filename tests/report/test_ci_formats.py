"""SARIF, GitHub annotations and JUnit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as Xml

import pytest

from tilesim import Builder, kernel, s32
from tilesim.checker import Report, check
from tilesim.checker.assumptions import Leaning
from tilesim.errors import Diagnostic
from tilesim.findings.finding import Finding, Participant, Rule
from tilesim.ir.declarations import SharedTensor
from tilesim.ir.loc import Loc
from tilesim.ir.program import Verdict
from tilesim.report import github, junit, sarif
from tilesim.report import json as json_report
from tilesim.report.result import Checked, Failure, Rejected, Result
from tilesim.report.text import result_text

from .programs import checked, line

REJECTED = Rejected("a.py::bad", "sm_90a", (Diagnostic("tma", "box too wide", Loc("a.py", 3)),))
FAILURE = Failure("b.py", "no such file")


def log(*results: Result) -> dict[str, Any]:
    """The only run of the SARIF log."""
    document = json.loads(sarif.render(results))
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-2.1.0.json")
    (run,) = document["runs"]
    found: dict[str, Any] = run
    return found


def with_findings(*findings: Finding, verdict: Verdict = "failed") -> Checked:
    """A result with these findings."""
    report = replace(checked("pipeline").report, verdict=verdict, findings=findings, leanings=())
    return Checked("k.py::k", "sm_90a", report)


HERE = Loc("k.py", 1)


def finding(rule: Rule = "race", loc: Loc = HERE, message: str = "m") -> Finding:
    """A finding with one side."""
    return Finding(rule, message, (Participant("r", 0, 0, "does", loc),))


# ------------------------------------------------------------------ SARIF


def test_sarif_has_what_the_schema_requires() -> None:
    run = log(checked("pipeline", parity=0), checked("rare"), REJECTED, FAILURE)
    driver = run["tool"]["driver"]
    assert driver["name"] == "tilesim"
    rules = [rule["id"] for rule in driver["rules"]]
    assert rules == sorted(set(rules)) == ["deadlock", "race", "tma"]
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning")
        assert result["message"]["text"]
        assert result["partialFingerprints"]["tilesim/v1"]
        for location in (*result["locations"], *result.get("relatedLocations", ())):
            place = location["physicalLocation"]
            assert place["region"]["startLine"] >= 1
            uri = place["artifactLocation"]["uri"]
            assert not uri.startswith("/")
            assert "\\" not in uri
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    (told,) = invocation["toolExecutionNotifications"]
    assert told["message"]["text"] == "b.py: no such file"


def _loop() -> int:
    """The line of the producer's loop."""
    return line('with k.role("producer", 4)')


def test_sarif_of_a_deadlock_has_one_thread_flow_per_role() -> None:
    (result,) = log(checked("pipeline", parity=0))["results"]
    (flow,) = result["codeFlows"]
    threads = {thread["id"]: thread for thread in flow["threadFlows"]}
    assert set(threads) == {"producer", "consumer"}
    (step,) = threads["producer"]["locations"]
    place = step["location"]["physicalLocation"]
    assert place["region"]["startLine"] == line("k.mbarrier.wait(empty[s]")
    assert step["location"]["message"]["text"] == (
        f"producer waits on empty[0] parity 0, in iteration 1 of the loop at :{_loop()} (i=0)"
    )


def test_sarif_of_a_race_has_the_other_side_as_related_location() -> None:
    race = next(r for r in log(checked("rare"))["results"] if r["ruleId"] == "race")
    assert "codeFlows" not in race
    (own,), others = race["locations"], race["relatedLocations"]
    assert own["physicalLocation"]["region"]["startLine"] == line("k.mbarrier.init(b, 3)")
    assert [other["id"] for other in others] == [*range(1, len(others) + 1)]
    told = [other["message"]["text"] for other in others]
    assert [text for text in told if text.startswith("writer writes x[0]")]
    assert [text for text in told if text.startswith("reader reads x[0]")]


def test_findings_of_several_ctas_are_one_result() -> None:
    (result,) = log(checked("lonely"))["results"]
    assert "(also in CTA 1)" in result["message"]["text"]


def test_sarif_without_findings_is_empty_and_successful() -> None:
    run = log(with_findings(verdict="proved"))
    assert run["results"] == []
    assert run["tool"]["driver"]["rules"] == []
    assert run["invocations"] == [{"executionSuccessful": True}]


def test_fingerprints_survive_lines_added_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "k.py"

    def mark(text: str, number: int, rule: Rule = "race") -> str:
        source.write_text(text)
        (result,) = log(with_findings(finding(rule, Loc("k.py", number))))["results"]
        value: str = result["partialFingerprints"]["tilesim/v1"]
        return value

    first = mark("a\nwait(b)\n", 2)
    assert mark("new\nlines\na\n  wait(b)\n", 4) == first
    assert mark("a\nwait(c)\n", 2) != first
    assert mark("a\nwait(b)\n", 2, "deadlock") != first


def test_sarif_paths_are_relative_and_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inside = sarif.artifact(Loc(str(tmp_path / "a b" / "k.py"), 1))
    assert inside == {"uri": "a%20b/k.py", "uriBaseId": "SRCROOT"}
    assert sarif.artifact(Loc("/elsewhere/k.py", 1)) == {"uri": "file:///elsewhere/k.py"}


def test_sarif_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MAX_RESULTS", 3)
    many = with_findings(*(finding(loc=Loc("k.py", n)) for n in range(1, 9)))
    assert len(log(many)["results"]) == 3


# ------------------------------------------------------------------ GitHub


@pytest.fixture
def summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the step's summary goes."""
    path = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    return path


def test_annotation_is_at_the_line_to_change(summary: Path) -> None:
    result = checked("pipeline", parity=0)
    first, last = github.render([result]).splitlines()
    place = result.report.findings[0].locations[0]
    assert place.line == line("k.mbarrier.wait(empty[s]")
    assert first.startswith(
        f"::error file=tests/report/programs.py,line={place.line},"
        "title=deadlock%3A kernels.py%3A%3Apipeline::"
    )
    waits = "%0Aproducer waits on empty[0] parity 0"
    said = f"{waits}, in iteration 1 of the loop at :{_loop()} (i=0) ("
    assert said in first
    assert last == "kernels.py::pipeline: failed"
    text = summary.read_text()
    assert "| `kernels.py::pipeline` | ❌ failed |" in text
    assert "### deadlock: kernels.py::pipeline" in text


def test_annotations_are_escaped() -> None:
    odd = github.Annotation("error", "50%, a:b", "100%\r\nnext", Loc("a,b:c.py", 4))
    assert str(odd) == ("::error file=a%2Cb%3Ac.py,line=4,title=50%25%2C a%3Ab::100%25%0D%0Anext")


def test_a_workflow_command_cannot_be_smuggled_in(summary: Path) -> None:
    text = github.render([Failure("x.py", "bad\n::set-output name=a::b")])
    assert len(text.splitlines()) == 2
    assert not any(row.startswith("::set-output") for row in text.splitlines())


def test_names_are_no_markup_in_the_summary(summary: Path) -> None:
    name = "<!--`|x.py"
    found = with_findings(finding(loc=Loc(name, 3)))
    github.render(
        [replace(found, kernel=name, report=replace(found.report, covers=f"with {name}"))]
    )
    text = summary.read_text()
    outside = "".join(text.split("`")[::2])
    assert "<!--" not in outside
    assert "x.py" in outside
    assert text.count("`<!--'\\|x.py") == 2


def test_ten_of_a_kind_are_shown_the_rest_is_in_the_summary(summary: Path) -> None:
    many = with_findings(*(finding(loc=Loc("k.py", n)) for n in range(1, 15)))
    maybe = with_findings(verdict="bounded")
    text = github.render([many, maybe])
    assert text.count("::error ") == github.LIMIT
    assert text.count("::warning ") == 1
    assert "4 more in the step's summary: GitHub shows 10 of a kind\n" in text
    assert summary.read_text().count("### race: k.py::k") == 14


def test_without_a_summary_file_the_rest_is_counted() -> None:
    many = with_findings(*(finding(loc=Loc("k.py", n)) for n in range(1, 13)))
    assert "2 more left out (GITHUB_STEP_SUMMARY is not set)" in github.render([many])


def test_summary_is_bounded(summary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(github, "SUMMARY_BYTES", 2000)
    many = with_findings(*(finding(loc=Loc("k.py", n), message="é" * 50) for n in range(1, 40)))
    github.render([many])
    data = summary.read_bytes()
    assert len(data) <= 2000
    assert data.decode().endswith("(cut: the summary is larger than GitHub accepts)\n")


def test_paths_are_relative_to_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert "file=sub/k.py," in str(github.Annotation("error", "t", "m", Loc("k.py", 1)))


def test_markdown_cannot_leave_its_code_block(summary: Path) -> None:
    github.render([with_findings(finding(message="```\n# heading"))])
    assert "````text\n" in summary.read_text()


# ------------------------------------------------------------------ functions that are called


def _inner(k: Builder, word: SharedTensor, value: int) -> None:
    k.mem.store(word[0], value)


def _outer(k: Builder, word: SharedTensor, value: int) -> None:
    _inner(k, word, value)


@kernel(warps=2)
def called(k: Builder) -> None:
    word = k.shared("word", s32, (1,))
    with k.role("a", 0), k.elected():
        _inner(k, word, 1)
    with k.role("b", 1), k.elected():
        _outer(k, word, 2)


def test_lines_of_a_function_are_told_apart_by_its_calls() -> None:
    result = Checked("k.py::called", "sm_90a", check(called.build()))
    (race,) = json_report.result_json(result)["findings"]
    lines = {
        text: f"{Path(__file__).relative_to(Path.cwd())}:{number}"
        for number, text in enumerate(map(str.strip, Path(__file__).read_text().splitlines()), 1)
    }
    store, inner = lines["k.mem.store(word[0], value)"], lines["_inner(k, word, value)"]
    b, a = race["participants"]
    of_b = ["_inner(k, word, value)", "_outer(k, word, 2)"]
    for side, calls in ((a, ["_inner(k, word, 1)"]), (b, of_b)):
        assert f"{side['file']}:{side['line']}" == store
        places = [f"{call['file']}:{call['line']}" for call in side["calls"]]
        assert places == [lines[text] for text in calls]
    both = f"{store}, called at {inner}, called at {lines['_outer(k, word, 2)']}"
    assert f"b writes word[0] by st ({both})" in unquote(github.render([result]))
    shown = result_text(result)
    assert f"called at {inner} | _inner(k, word, value)" in shown
    assert f"called at {lines['_inner(k, word, 1)']} | _inner(k, word, 1)" in shown


# ------------------------------------------------------------------ JUnit


def test_junit_has_a_case_per_kernel() -> None:
    results: list[Result] = [
        checked("pipeline"), checked("pipeline", parity=0), with_findings(verdict="bounded"),
        REJECTED, FAILURE,
    ]  # fmt: skip
    root = Xml.fromstring(junit.render(results).encode())
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    counts = {key: suite.attrib[key] for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "5", "failures": "1", "errors": "2", "skipped": "1"}
    outcomes = [[child.tag for child in case if child.tag != "system-out"] for case in suite]
    assert outcomes == [[], ["failure"], ["skipped"], ["error"], ["error"]]
    case = suite[1]
    assert case.attrib == {"classname": "kernels.py", "name": "pipeline"}
    assert case[0].attrib["message"].startswith("deadlock: ")
    assert "fix " in (case[0].text or "")


def test_junit_replaces_what_xml_does_not_allow() -> None:
    text = junit.render([Failure("x\x00.py", "a\x1b[31m<&>")])
    root = Xml.fromstring(text.encode())
    assert root[0][0][0].attrib["message"]
    assert "\x1b" not in text


def test_reports_have_times_only_if_they_are_asked_for() -> None:
    results = [checked("pipeline", parity=0)]
    timed = replace(results[0], seconds=1.23456)
    case = Xml.fromstring(junit.render([timed])).find("testsuite/testcase")
    assert case is not None
    assert case.get("time") == "1.235"
    entry = json_report.result_json(timed)
    assert entry.pop("seconds") == 1.235
    assert entry == json_report.result_json(results[0])
    assert sarif.render(results) == sarif.render(results)
    assert "time" not in junit.render(results).split("<failure")[0]
    assert isinstance(results[0].report, Report)


# ------------------------------------------------------------------ both


def test_states_of_barriers_and_what_to_read_are_in_messages_of_all_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILESIM_DOCS", "https://d.example/{page}.md")
    note = "1 arrival and 256 bytes expected by mbarrier.arrive.expect_tx of warp 0 at k.py:2"
    found = replace(
        finding("over-arrival", message="32 arrivals on b (A13, U5), or (A99)"), notes=(note,)
    )
    (result,) = log(with_findings(found))["results"]
    pages = [
        "https://d.example/findings/over-arrival.md",
        "https://d.example/semantics.md#a13",
        "https://d.example/semantics.md#u5",
    ]
    command = "more: tilesim explain over-arrival A13 U5"
    assert f"{note}." in result["message"]["text"]
    assert result["message"]["text"].endswith(" ".join([command, *pages]))
    text = github.render([with_findings(found)])
    assert f"%0A{note}" in text
    assert "%0A".join([command, *pages]) in text
    monkeypatch.delenv("TILESIM_DOCS")
    assert f"{command}\n" in github.render([with_findings(found)])


def test_rules_without_a_page_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILESIM_DOCS", "https://d.example/{page}.md")
    (result,) = log(REJECTED)["results"]
    assert result["message"]["text"] == "a.py::bad: box too wide."


def test_what_a_proof_leans_on_is_named_and_not_put_as_a_condition() -> None:
    leaning = Leaning("cluster-size", "clusters of 16 CTAs are not portable", (HERE,), "assumption")
    done = with_findings(verdict="proved")
    done = replace(done, report=replace(done.report, leanings=(leaning,)))
    said = "proved only by leaning on cluster-size: clusters of 16 CTAs are not portable"
    (note,) = log(done)["results"]
    assert note["level"] == "note"
    assert note["message"]["text"] == f"k.py::k: {said}."
    assert f"::notice file=k.py,line=1,title=cluster-size%3A k.py%3A%3Ak::{said}%0A" in (
        github.render([done])
    )
