"""Certificates: written, read, altered, cut, huge and hostile."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import tilesim as ts
from tilesim.checker import check
from tilesim.cli import main
from tilesim.errors import UsageError
from tilesim.ir.lower import lower
from tilesim.proof.certificate import Certificate, fingerprint, read
from tilesim.proof.check import certify
from tilesim.proof.rules import Answer
from tilesim.search.certificates import classes_of


@ts.kernel
def tiles(k: ts.Builder, *, shared: bool = False, odd: bool = False) -> None:
    """Each CTA stores its row; with ``odd`` those of an odd number wait for a barrier as well; with
    ``shared`` two of them store to one."""
    k.launch(warps=1, grid=6)
    out = k.tensor("out", ts.s32, (6, 32))
    ready = k.mbarriers("ready")
    with k.one_thread():
        k.mbarrier.init(ready, 1)
        k.mbarrier.arrive(ready)
    k.sync_threads()
    if odd:
        with k.if_((k.cta_x % 2).eq(1)):
            k.mbarrier.wait(ready, 0)
    row = ts.minimum(k.cta_x, 4) if shared else k.cta_x
    k.mem.store(out[row, k.lane_id], 1)


MIR = lower(tiles.build(odd=True))
CLASSES = classes_of(MIR)
CERTIFICATE = Certificate("tiles", "", fingerprint(MIR), "practice", (), CLASSES)


def test_clusters_that_do_the_same_are_one_class() -> None:
    assert CLASSES == ((0, 2, 4), (1, 3, 5))
    assert str(certify(MIR, CLASSES)) == "certified"


def test_a_cluster_that_does_something_else_is_found() -> None:
    answer = certify(MIR, [range(6)])
    assert (answer.verdict, answer.what[:19]) == ("not covered", "cluster 1 differs i")


@pytest.mark.parametrize("classes", [[[0, 2, 4], [1, 3]], [[0, 2, 4], [1, 3, 5, 5]], [[0, 2], []]])
def test_a_partition_has_each_cluster_once(classes: list[list[int]]) -> None:
    assert certify(MIR, classes).rule == "partition"


def test_clusters_of_one_class_that_race_are_found() -> None:
    mir = lower(tiles.build(shared=True))
    assert "stores that may be of equal values" in certify(mir, [range(6)]).what
    assert certify(mir).rule == "clusters"


def test_it_is_read_as_it_was_written() -> None:
    assert read(CERTIFICATE.text()) == CERTIFICATE
    assert CERTIFICATE.text() == read(CERTIFICATE.text()).text()


def test_a_certificate_is_one_of_its_program() -> None:
    other = lower(tiles.build())
    answer = ts.recheck(CERTIFICATE, other)
    assert answer == Answer("refuted", "fingerprint", "a certificate of another tiles")
    assert str(ts.recheck(CERTIFICATE, MIR)) == "certified"


@pytest.mark.parametrize(
    "change", [{"grid": (5, 1, 1)}, {"warps": 2}, {"registers": 64}, {"smem_bytes": 4096}]
)
def test_the_fingerprint_is_of_the_launch_too(change: dict[str, Any]) -> None:
    other = replace(MIR, kernel=replace(MIR.kernel, **change))
    assert fingerprint(other) != fingerprint(MIR)


def test_the_fingerprint_is_of_each_instruction() -> None:
    for n in range(len(MIR.code)):
        left = (*MIR.code[:n], *MIR.code[n + 1 :])
        assert fingerprint(replace(MIR, code=left)) != fingerprint(MIR)


def test_the_level_ptx_is_not_covered() -> None:
    answer = ts.recheck(replace(CERTIFICATE, strict="ptx"), MIR)
    assert answer == Answer("not covered", what="the level ptx")


@given(st.randoms(use_true_random=False))
def test_an_altered_certificate_is_refused_or_still_true(draw: random.Random) -> None:
    """Whatever is changed in the file, a wrong program is never certified."""
    wrong = lower(tiles.build(shared=True))
    document = json.loads(replace(CERTIFICATE, fingerprint=fingerprint(wrong)).text())
    for _ in range(draw.randint(1, 3)):
        numbers = [n for some in document["classes"] for n in some]
        pair = draw.choice(numbers)
        pair[draw.randrange(2)] += draw.choice((-1, 1, 2, 10))
        if draw.random() < 0.3:
            document["classes"].append(draw.choice(document["classes"]))
    try:
        altered = read(json.dumps(document))
    except UsageError:
        return
    assert ts.recheck(altered, wrong).verdict != "certified"


TEXT = CERTIFICATE.text()
HOSTILE = {
    "nothing": "", "cut": TEXT[: len(TEXT) // 2], "a number": "7", "a list": "[]",
    "deep": "[" * 100_000, "a long number": '{"tilesim-certificate": 1' + "0" * 10_000 + "}",
    "another version": TEXT.replace('certificate": 1', 'certificate": 2'),
    "an unknown key": TEXT.replace('"kernel"', '"colonel"'),
    "a missing key": json.dumps({"tilesim-certificate": 1}),
    "another level": TEXT.replace('"practice"', '"theory"'),
    "words for classes": TEXT.replace('"classes": [', '"classes": ["all", '),
    "true for a number": TEXT.replace("[0, 0]", "[false, 0]"),
    "backwards": TEXT.replace("[0, 0]", "[4, 0]"), "negative": TEXT.replace("[0, 0]", "[-4, 0]"),
    "a huge range": TEXT.replace("[0, 0]", "[0, 99999999999999]"),
    "a program that is no word": TEXT.replace('"kernel": "tiles"', '"kernel": ["tiles"]'),
    "assumptions that are no words": TEXT.replace('"assumptions": []', '"assumptions": [1]'),
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_a_hostile_certificate_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        read(text)
    assert "\n" not in str(error.value)
    path = tmp_path / "c.json"
    path.write_text(text)
    result = CliRunner().invoke(main, ["recheck", str(path)])
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilesim.proof.certificate.MOST_TEXT", 100)
    with pytest.raises(UsageError, match="at most 100 characters"):
        read(TEXT)


TARGET = "tilesim.kernels.hopper.softmax::softmax"


def test_the_command_line_writes_and_rechecks(tmp_path: Path) -> None:
    path = tmp_path / "softmax.json"
    checked = CliRunner().invoke(main, ["check", TARGET, "--certificate", str(path)])
    assert checked.exit_code == 0, checked.output
    assert checked.stdout.startswith(f"PROVED {TARGET}, rechecked\n")
    again = CliRunner().invoke(main, ["recheck", str(path)])
    assert (again.exit_code, again.stdout) == (0, f"{TARGET}: certified\n")
    other = "tilesim.kernels.hopper.matmul_v0::matmul"
    wrong = CliRunner().invoke(main, ["recheck", str(path), other])
    assert (wrong.exit_code, wrong.stdout) == (
        1, f"{other}: refuted: fingerprint: a certificate of another softmax\n",
    )  # fmt: skip
    said = CliRunner().invoke(main, ["recheck", str(path), "--format", "json"])
    assert json.loads(said.stdout)["verdict"] == "certified"


def test_a_report_has_the_certificate_that_was_asked_for() -> None:
    report = check(tiles, certificate=True)
    assert report.certificate is not None
    assert ts.recheck(report.certificate.text(), tiles) == report.rechecked
    assert str(report.rechecked) == "certified"
    assert check(tiles).certificate is None
    assert check(tiles.build(shared=True), certificate=True).certificate is None


def test_what_the_kernel_does_not_cover_is_said() -> None:
    target = "tilesim.kernels.blackwell.matmul_v5::matmul"
    said = CliRunner().invoke(main, ["check", target, "--certificate", "/dev/null"])
    assert f"PROVED {target}\n" in said.stdout
    assert "recheck   not covered: instruction" in said.stdout


def test_a_proof_that_the_kernel_refutes_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    refuted = Answer("refuted", "A", "a credit comes too early")
    monkeypatch.setattr("tilesim.proof.check.certify", lambda *_: refuted)
    report = check(tiles, certificate=True)
    assert report.verdict == "bounded"
    assert report.reasons == (
        "the proof kernel refutes the proof, which is a bug in tilesim: a credit comes too early",
    )
    assert report.certificate is None
