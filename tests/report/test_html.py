"""The HTML report: one file, well formed, everything from users escaped."""

from __future__ import annotations

import re
from contextlib import chdir
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

import tilesim as ts
from tilesim.checker import check
from tilesim.checker.witness import retrace
from tilesim.errors import Diagnostic
from tilesim.ir.loc import Loc
from tilesim.ptx.launch import Launch
from tilesim.report import html
from tilesim.report.html import diagram, timeline, waitfor
from tilesim.report.html.diagram import Link, protocol
from tilesim.report.result import Checked, Failure, Rejected, Result
from tilesim.sim.observers.timeline import record

from .programs import ROOT, checked, line, pipeline

_VOID = {"meta", "br", "link"}


class _Parser(HTMLParser):
    """Fails on elements that are not closed in order; collects tags, texts and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(*results: Result) -> _Parser:
    """The report, which must be well formed."""
    parser = _Parser()
    parser.feed(html.render(results))
    parser.close()
    assert parser.open == []
    return parser


@pytest.fixture(scope="module")
def failed() -> Checked:
    """A deadlock of the timed schedule."""
    return checked("pipeline", parity=0)


def test_a_failed_kernel_has_everything(failed: Checked) -> None:
    page = parsed(failed)
    headings = ["What waits for what", "How it gets there", "Barriers: arrivals and waits"]
    for text in (*headings, "Timeline: the timed schedule, in cycles"):
        assert text in page.text
    finding = failed.report.findings[0]
    assert f"deadlock: {finding.message}" in page.text
    assert finding.fix in page.text
    for note in finding.notes:
        assert note in page.text
    assert [tag for tag, _ in page.tags].count("svg") == 3


def test_cause_and_fix_stand_first_and_what_is_covered_last(failed: Checked) -> None:
    text = html.render([failed])
    finding = failed.report.findings[0]
    said, shown = (finding.message, finding.cause, finding.fix), ('<span class="hit"', "<details>")
    parts = [*said, *shown, "<svg", failed.report.covers]
    places = [text.index(escape(part) if part[0] != "<" else part) for part in parts]
    assert places == sorted(places)


def test_a_race_has_no_graph_of_waits() -> None:
    text = html.render([checked("rare")])
    assert "How it gets there" in text
    assert "What waits for what" not in text
    assert "<details><summary>Barriers" in text


def test_a_page_fits_a_phone(failed: Checked) -> None:
    """It is as wide as the screen; what is wider scrolls by itself."""
    text = html.render([failed])
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert "@media (max-width: 600px)" in text
    before = re.findall(r"(.{20})<(?:svg|table class=.story)", text)
    assert len(before) == 4
    assert {part[-20:] for part in before} == {'<div class="scroll">'}


def test_the_line_is_shown_among_its_neighbours(failed: Checked) -> None:
    text = html.render([failed])
    number = line("k.mbarrier.wait(empty[s]")
    (hit,) = re.findall(rf'<span class="hit"><span class="number">\s*{number} </span>(.*?)</span>',
                        text)  # fmt: skip
    assert hit == "        k.mbarrier.wait(empty[s], ((i // stages) &amp; 1) ^ parity)"
    for near in range(number - 3, number + 4):
        assert f"{near:5} </span>" in text


def test_nothing_is_fetched(failed: Checked) -> None:
    text = html.render([failed])
    assert "<script" not in text
    assert not re.search(r"(src|href)=\"(?!#)", text)
    assert "url(http" not in text
    assert "prefers-color-scheme: dark" in text


def test_the_same_result_gives_the_same_bytes(failed: Checked) -> None:
    with chdir(ROOT):
        program = pipeline.build(parity=0)
    report = check(program)
    assert report.witness is not None
    again = Checked(failed.kernel, failed.target, report, "", diagram.drawn(program),
                    retrace(program, report.witness))  # fmt: skip
    assert html.render([again]) == html.render([failed])


def test_what_users_write_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert('&')</script>"

    @ts.kernel(warps=1, name=evil)
    def kernel(k: ts.Builder) -> None:
        b = k.mbarriers("b")
        with k.role(evil, 0), k.elected():
            k.mbarrier.init(b, 2)
            k.mbarrier.arrive(b)
            k.mbarrier.wait(b, 0)

    program = kernel.build()
    report = check(program)
    assert report.witness is not None
    source = tmp_path / "<b>.py"
    source.write_text(f"# {evil}\n")
    results: list[Result] = [
        Checked(
            evil, "sm_90a", report, evil, diagram.drawn(program), retrace(program, report.witness)
        ),
        Rejected(evil, None, (Diagnostic(evil, evil, Loc(str(source), 1), evil),)),
        Failure(evil, evil),
    ]
    text = html.render(results)
    assert "<script" not in text
    assert "<b>.py" not in text
    page = parsed(*results)
    assert page.text.count(evil) > 10


def test_the_index_tells_launches_of_a_kernel_apart() -> None:
    launches = (Launch("k", (1, 1, 1), about=f"with STAGES={n}, <b>") for n in (2, 3))
    proof = checked("pipeline")
    results = [replace(proof, configuration=launch.configuration) for launch in launches]
    index, _, _ = html.render(results).partition("<section")
    assert index.count("with STAGES=2, &lt;b&gt;") == index.count("with STAGES=3, &lt;b&gt;") == 1


def test_several_kernels_have_a_table_of_contents(failed: Checked) -> None:
    page = parsed(checked("pipeline"), failed, Failure("x.py", "no such file"))
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    targets = [f"#{attrs['id']}" for tag, attrs in page.tags if tag == "section"]
    assert links == targets == ["#r0", "#r1", "#r2"]
    badges = re.findall(r'<span class="badge ?(\w*)">(\w+)</span>', html.render([failed]))
    assert badges == [("", "failed")]


# ------------------------------------------------------------------ pictures


def test_protocol_is_read_from_effects() -> None:
    links = protocol(pipeline.build()).links
    assert set(links) == {
        Link("producer", "empty", "waits", "wait"),
        Link("producer", "full", "arrives, expects 8,192 bytes", "run"),
        Link("producer", "full", "copy to tile completes 8,192 bytes", "copy"),
        Link("consumer", "full", "waits", "wait"),
        Link("consumer", "empty", "arrives", "run"),
    }
    assert protocol(pipeline.build()).counts == {"full": {"1": None}, "empty": {"4": None}}


def test_pictures_are_well_formed_xml(failed: Checked) -> None:
    assert failed.recording is not None
    (shown,) = failed.recording.timelines
    pictures = [diagram.draw(pipeline.build()), waitfor.draw(shown.waiters), timeline.draw(shown)]
    for picture in pictures:
        assert picture is not None
        root = Xml.fromstring(picture.file())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        width, height = (float(root.attrib[name]) for name in ("width", "height"))
        assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"
        for shape in root.iter("{http://www.w3.org/2000/svg}rect"):
            a = shape.attrib
            assert float(a.get("x", 0)) + float(a["width"]) <= width
            assert float(a.get("y", 0)) + float(a["height"]) <= height


def test_wait_for_graph_has_a_node_per_waiter_and_an_arrow_per_release(failed: Checked) -> None:
    assert failed.recording is not None
    graph = waitfor.draw(failed.recording.timelines[0].waiters)
    assert graph is not None
    text = graph.element()
    assert text.count('class="edge bad"') == 2
    for name in ("producer (warp 4)", "consumer (warps 0-3)"):
        assert 'class="bold" x="' in text
        assert name in text
    assert "empty[0] phase 0: 4 of 4 arrivals pending" in text
    assert waitfor.draw(record(pipeline.build()).timelines[0].waiters) is None


def test_nobody_is_a_node_when_nobody_can_help() -> None:
    recording = checked("lonely").recording
    assert recording is not None
    graph = waitfor.draw(recording.timelines[0].waiters)
    assert graph is not None
    assert waitfor.NO_WARP in graph.element()


def test_timeline_marks_waits_that_never_end(failed: Checked) -> None:
    assert failed.recording is not None
    picture = timeline.draw(failed.recording.timelines[0])
    assert picture is not None
    assert picture.element().count('class="stuck"') == 5
    fine = timeline.draw(record(pipeline.build()).timelines[0])
    assert fine is not None
    assert 'class="stuck"' not in fine.element()


def test_a_program_without_barriers_has_no_diagram() -> None:
    @ts.kernel(warps=1)
    def plain(k: ts.Builder) -> None:
        k.sync_warp()

    assert diagram.draw(plain.build()) is None
