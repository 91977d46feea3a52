"""Certificates: written, read, altered, cut, huge and hostile."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesim as ts
from tests.cli.test_ptx import files
from tests.kernel.programs_edges import exchanges_addresses
from tilesim import Builder
from tilesim.checker import check
from tilesim.checker.certificate_file import VERSION, read, text_of
from tilesim.checker.certificates import certified, proposed
from tilesim.cli import main
from tilesim.errors import UsageError
from tilesim.ir.loc import Loc
from tilesim.kernels.bugs.accepted_idioms import dynamic_loop
from tilesim.kernels.hopper.softmax import softmax
from tilesim.proof.certificate import Certificate, Repetition, fingerprint
from tilesim.proof.check import certify
from tilesim.proof.rules import Answer
from tilesim.transforms.lower import lower


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


@ts.kernel
def long(k: ts.Builder) -> None:
    """It takes minutes to execute."""
    k.launch(warps=1)
    with k.loop(1_000_000):
        k.sync_warp()


@ts.kernel(warps=1)
def observed(k: ts.Builder) -> None:
    """Two phases, of which nothing waits for the first one."""
    ready = k.mbarriers("ready")
    with k.one_thread():
        k.mbarrier.init(ready, 1)
        k.mbarrier.arrive(ready)
        k.mbarrier.arrive(ready)


MIR = lower(tiles.build(odd=True))
CLASSES, LEFT_OUT = proposed(MIR)
CERTIFICATE = Certificate("tiles", "", fingerprint(MIR), "practice", (), (), CLASSES, LEFT_OUT)


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


@pytest.mark.parametrize(("first", "verdict"), [(4, "certified"), (2, "not covered")])
def test_addresses_of_two_ctas_are_not_the_same_in_a_class(first: int, verdict: str) -> None:
    builder = Builder("exchanged")
    exchanges_addresses(builder, first, clusters=2)
    mir = lower(builder.finish())
    for classes in (((0, 1),), ((0,), (1,))):
        assert certify(mir, classes).verdict == verdict


def test_it_is_read_as_it_was_written() -> None:
    assert read(text_of(CERTIFICATE)) == CERTIFICATE
    for some in ({"classes": None}, {"repetitions": None}, {"strict": "ptx"}):
        assert read(text_of(replace(CERTIFICATE, **some))) == replace(CERTIFICATE, **some)
    repeated = replace(CERTIFICATE, repetitions=((Repetition(0, 1, 2), Repetition(9, 8, 7)), ()))
    assert read(text_of(repeated)) == repeated
    assert text_of(CERTIFICATE) == text_of(read(text_of(CERTIFICATE)))


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


def test_the_fingerprint_is_not_of_what_messages_name() -> None:
    first, *rest = MIR.code
    elsewhere = replace(first, what=replace(first.what, loc=Loc("elsewhere.py", 1)))
    other = replace(MIR, code=(elsewhere, *rest))
    assert fingerprint(other) == fingerprint(MIR)


def test_it_is_rechecked_at_its_own_level() -> None:
    mir = lower(observed.build())
    made = Certificate("observed", "", fingerprint(mir), "practice")
    assert str(ts.recheck(made, mir)) == "certified"
    assert ts.recheck(replace(made, strict="ptx"), mir).rule == "U1"


def test_what_a_tensor_holds_is_part_of_it() -> None:
    """A loop as long as a tensor says: a proof is of that length, whatever the file names."""
    given = {"count": np.array([5], np.int32)}
    report = check(dynamic_loop.build(), inputs=given, certificate=True)
    made = report.certificate
    assert report.said == "proved, leaning on contents"
    assert report.rechecked == Answer("certified")
    assert made is not None
    assert made.inputs == (("count", b"\5\0\0\0"),)
    assert read(text_of(made)) == made
    unknown = ts.recheck(replace(made, inputs=()), dynamic_loop.build())
    assert unknown.verdict == "not covered"
    assert "data decides" in unknown.what
    longer = replace(made, inputs=(("count", b"\x0b\0\0\0"),))
    assert ts.recheck(longer, dynamic_loop.build()).rule == "inside"  # X has 8 rows


@pytest.mark.parametrize("inputs", [[], {"count": 5}, {"count": "5g"}, {"count": "1"}, 7])
def test_inputs_that_are_none_are_refused(inputs: object) -> None:
    document = json.loads(text_of(CERTIFICATE)) | {"inputs": inputs}
    with pytest.raises(UsageError, match=r"at `\$\.inputs"):
        read(json.dumps(document))


def test_a_recheck_names_the_tensors_whose_contents_it_takes(tmp_path: Path) -> None:
    target = "tilesim.kernels.bugs.accepted_idioms::dynamic_loop"
    file = str(tmp_path / "proof.json")
    said = CliRunner().invoke(main, ["check", target, "--certificate", file])
    assert said.exit_code == 0
    assert ", rechecked" in said.output
    again = CliRunner().invoke(main, ["recheck", file])
    assert again.output.split("; ")[1:] == [
        "strictness practice", "the check leaned on contents", "for these contents of count\n"
    ]  # fmt: skip


@settings(deadline=None)
@given(st.randoms(use_true_random=False))
def test_an_altered_certificate_is_refused_or_still_true(draw: random.Random) -> None:
    """Whatever is changed in the file, a wrong program is never certified."""
    wrong = lower(tiles.build(shared=True))
    document = json.loads(text_of(replace(CERTIFICATE, fingerprint=fingerprint(wrong))))
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


TEXT = json.dumps(json.loads(text_of(CERTIFICATE)))
HOSTILE = {
    "nothing": "", "cut": TEXT[: len(TEXT) // 2], "a number": "7", "a list": "[]",
    "deep": "[" * 100_000, "a long number": '{"tilesim-certificate": 2' + "0" * 10_000 + "}",
    "another version": TEXT.replace(f'certificate": {VERSION}', 'certificate": 2'),
    "an unknown key": TEXT.replace('"kernel"', '"colonel"'),
    "a missing key": json.dumps({"tilesim-certificate": VERSION}),
    "a long name": TEXT.replace('"kernel": "', '"kernel": "' + "k" * 20_000),
    "another level": TEXT.replace('"practice"', '"theory"'),
    "words for classes": TEXT.replace('"classes": [', '"classes": ["all", '),
    "true for a number": TEXT.replace("[0, 0]", "[false, 0]"),
    "backwards": TEXT.replace("[0, 0]", "[4, 0]"), "negative": TEXT.replace("[0, 0]", "[-4, 0]"),
    "a huge range": TEXT.replace("[0, 0]", "[0, 99999999999999]"),
    "a program that is no word": TEXT.replace('"kernel": "tiles"', '"kernel": ["tiles"]'),
    "assumptions that are a word": TEXT.replace('"assumptions": []', '"assumptions": "word"'),
    "repetitions that are no list": TEXT.replace('"repetitions": [', '"repetitions": [7, '),
    "repetitions of two numbers": TEXT.replace('"repetitions": [[', '"repetitions": [[[1, 2], '),
    "repetitions of words": TEXT.replace('"repetitions": [[', '"repetitions": [[[1, 2, "3"], '),
    "negative repetitions": TEXT.replace('"repetitions": [[', '"repetitions": [[[1, 2, -3], '),
    "true for a round": TEXT.replace('"repetitions": [[', '"repetitions": [[[1, 2, true],'),
    "a range of one number": TEXT.replace("[0, 0]", "[0]"),
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
    monkeypatch.setattr("tilesim.checker.certificate_file.MOST_TEXT", 100)
    with pytest.raises(UsageError, match="at most 100 characters"):
        read(TEXT)


TARGET = "tilesim.kernels.hopper.softmax::softmax"
SOFTMAX = replace(certified(softmax.build(), "practice", (), None)[0], target=TARGET)


def test_the_command_line_writes_and_rechecks(tmp_path: Path) -> None:
    path = tmp_path / "softmax.json"
    checked = CliRunner().invoke(main, ["check", TARGET, "--certificate", str(path)])
    assert checked.exit_code == 0, checked.output
    assert checked.stdout.startswith(f"PROVED {TARGET}, rechecked\n")
    again = CliRunner().invoke(main, ["recheck", str(path)])
    assert (again.exit_code, again.stdout) == (0, f"{TARGET}: certified; strictness practice\n")
    other = "tilesim.kernels.hopper.matmul_v0::matmul"
    wrong = CliRunner().invoke(main, ["recheck", str(path), other])
    refuted = "refuted: fingerprint: a certificate of another softmax"
    assert (wrong.exit_code, wrong.stdout) == (1, f"{other}: {refuted}; strictness practice\n")


def test_a_recheck_says_what_the_check_leaned_on(tmp_path: Path) -> None:
    path = tmp_path / "tiles.json"
    leaning = replace(SOFTMAX, assumptions=("in-bounds", "inputs\nx: certified"))
    path.write_text(text_of(leaning))
    said = CliRunner().invoke(main, ["recheck", str(path)])
    assert said.stdout == (
        f"{TARGET}: certified; strictness practice; "
        "the check leaned on in-bounds, inputs\\x0ax: certified\n"
    )
    document = CliRunner().invoke(main, ["recheck", str(path), "--format", "json"]).stdout
    assert json.loads(document) == {
        "schema": 1, "kernel": TARGET, "verdict": "certified", "rule": "", "what": "",
        "trusts": "", "strict": "practice", "assumptions": list(leaning.assumptions),
        "inputs": {}, "for_all": None,
    }  # fmt: skip


# ---------------------------------------------------------------------- which target it names

PYTHON = """
from pathlib import Path
import tilesim as ts
Path("ran").touch()
@ts.kernel
def k(k: ts.Builder) -> None:
    k.launch(warps=1)
    k.sync_threads()
"""
CODE = (
    "evil.py", "evil.py::k", "evil", "evil::k", "./evil.py", "-", "tilesim.kernels_evil::k",
    "tilesim.checker", "folder", "folder.tile",
)  # fmt: skip


@pytest.mark.parametrize("name", CODE)
def test_code_that_a_certificate_names_is_not_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("folder", "folder.tile"):
        Path(folder).mkdir()
        Path(folder, "evil.py").write_text(PYTHON)
    Path("evil.py").write_text(PYTHON)
    Path("c.json").write_text(text_of(replace(CERTIFICATE, target=name)))
    result = CliRunner().invoke(main, ["recheck", "c.json"], input=PYTHON)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: c.json names {name}, and rechecking runs its code: if you trust "
        f"it, name it on the command line: tilesim recheck c.json {name}\n"
    )
    assert not Path("ran").exists()


def test_code_that_the_command_line_names_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(PYTHON)
    checked = CliRunner().invoke(main, ["check", "own.py", "--certificate", "c.json"])
    assert checked.exit_code == 0, checked.output
    assert CliRunner().invoke(main, ["recheck", "c.json"]).exit_code == 2
    result = CliRunner().invoke(main, ["recheck", "c.json", "own.py"])
    assert (result.exit_code, result.stdout) == (0, "own.py::k: certified; strictness practice\n")


@pytest.mark.parametrize("suffix", ["tile", "mir"])
def test_a_file_that_a_certificate_names_is_read(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    form = ["--mir"] if suffix == "mir" else []
    shown = CliRunner().invoke(main, ["show", TARGET, "-o", f"k.{suffix}", *form])
    assert shown.exit_code == 0, shown.output
    CliRunner().invoke(main, ["check", f"k.{suffix}", "--certificate", "c.json"])
    result = CliRunner().invoke(main, ["recheck", "c.json"])
    said = f"k.{suffix}::softmax: certified; strictness practice\n"
    assert (result.exit_code, result.stdout) == (0, said)


#: a loop that is a wait once what no instruction reads is left out
IN_VAIN = (
    "M: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n@%p1 bra D;\n"
    "mov.u32 %r7, 1;\nbra M;\nD:"
)
#: nothing sets the register with the address of a parameter: the plain form is refused
ADDRESS = ".reg .b64 %rd<3>; mov.u64 %rd1, a; mov.b64 {%r7, %r8}, %rd1;\n"
PASSES = "the passes behind the plain form of PTX"


@pytest.mark.parametrize("more", ["", IN_VAIN, ADDRESS], ids=["plain", "in vain", "address"])
def test_of_ptx_it_is_said_which_form_was_rechecked(more: str, tmp_path: Path) -> None:
    plain = not more
    path = files(tmp_path, f"@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];{more}")
    written = str(tmp_path / "c.json")
    checked = CliRunner().invoke(main, ["check", path, "--certificate", written])
    assert checked.exit_code == 0
    assert checked.stdout.startswith(f"PROVED {path}::k, rechecked\n")
    why = " ".join(checked.stdout.split())
    assert (f"recheck trusts {PASSES}, as the plain form is not covered: " in why) is not plain
    result = CliRunner().invoke(main, ["recheck", written])
    said = "" if plain else f"; trusts {PASSES}"
    assert (result.exit_code, result.stdout) == (
        0, f"{path}::k: certified; strictness practice{said}\n"
    )  # fmt: skip
    files(tmp_path, "")
    wrong = CliRunner().invoke(main, ["recheck", written])
    assert (wrong.exit_code, wrong.stdout[: len(path) + 25]) == (
        1,
        f"{path}::k: refuted: fingerprint",
    )


@pytest.mark.parametrize(
    "name", ["a" * 9000 + ".tile", "a/" * 5000 + "b.ptx", "a\0b.mir", "gone.tile", "::", "a\nb.ptx"]
)
def test_a_hostile_name_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(text_of(replace(CERTIFICATE, target=name)))
    result = CliRunner().invoke(main, ["recheck", str(path)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("error: ")


# ---------------------------------------------------------------------- time, and Ctrl-C


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_recheck_ends_at_its_time_limit(tmp_path: Path) -> None:
    assert ts.recheck(CERTIFICATE, MIR, time_limit=1e-6) == Answer("not covered", what="time")
    assert str(ts.recheck(CERTIFICATE, MIR, time_limit=60)) == "certified"
    with pytest.raises(UsageError, match="time_limit must be positive"):
        ts.recheck(CERTIFICATE, MIR, time_limit=0)
    path = tmp_path / "softmax.json"
    path.write_text(text_of(SOFTMAX))
    result = CliRunner().invoke(main, ["recheck", str(path), "--time-limit", "0.001s"])
    said = f"{TARGET}: not covered: time; strictness practice\n"
    assert (result.exit_code, result.stdout) == (3, said)


def test_classes_are_looked_for_until_the_time_is_up() -> None:
    assert proposed(MIR, until=0.0) == (None, None)


def test_a_long_launch_is_left_soon() -> None:
    program = lower(long.build())
    start = time.monotonic()
    assert certify(program, until=start + 0.5).what == "time"
    assert time.monotonic() - start < 5


def test_the_time_limit_of_a_check_holds_for_its_recheck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilesim.limits.Timer.until", -1.0)
    made, answer = certified(MIR, "practice", (), -1.0)
    assert (answer, made.classes) == (Answer("not covered", what="time"), None)


def test_an_interrupted_recheck_leaves_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilesim.proof.machine.Machine.ends", interrupt)
    report = check(tiles, certificate=True)
    assert (report.verdict, report.certificate) == ("proved", None)
    assert report.rechecked == Answer("not covered", what="interrupted by the user")


def test_an_interrupt_ends_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, written = tmp_path / "c.json", tmp_path / "written.json"
    path.write_text(text_of(SOFTMAX))
    monkeypatch.setattr("tilesim.proof.machine.Machine.ends", interrupt)
    result = CliRunner().invoke(main, ["recheck", str(path)])
    said = f"{TARGET}: not covered: interrupted by the user; strictness practice\n"
    assert (result.exit_code, result.stdout) == (130, said)
    assert result.stderr == f"interrupted while rechecking {TARGET}\n"
    checked = CliRunner().invoke(main, ["check", TARGET, "--certificate", str(written)])
    assert checked.exit_code == 130
    assert checked.stdout.startswith(f"PROVED {TARGET}\n")
    assert "recheck   not covered: interrupted by the user" in checked.stdout
    assert f"no certificate is written to {written}: the check was interrupted" in checked.stderr
    assert f"interrupted while checking {TARGET}" in checked.stderr
    assert not written.exists()


# ---------------------------------------------------------------------- what is asked of a check


def test_that_no_certificate_is_written_is_said(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    target = "tilesim.kernels.bugs.transaction_bytes::plain_arrive"
    result = CliRunner().invoke(main, ["check", target, "--certificate", str(path)])
    assert result.exit_code == 1
    assert f"no certificate is written to {path}: nothing is proved\n" in result.stderr
    assert not path.exists()


def test_a_report_has_the_certificate_that_was_asked_for() -> None:
    report = check(tiles, certificate=True)
    assert report.certificate is not None
    assert ts.recheck(text_of(report.certificate), tiles) == report.rechecked
    assert str(report.rechecked) == "certified"
    assert check(tiles).certificate is None
    assert check(tiles.build(shared=True), certificate=True).certificate is None


def test_what_the_kernel_does_not_cover_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilesim.proof.machine.MOST_STEPS", 10)
    said = CliRunner().invoke(main, ["check", TARGET, "--certificate", "/dev/null"])
    assert f"PROVED {TARGET}\n" in said.stdout
    assert "recheck   not covered: more than 10 executed instructions" in said.stdout


def test_a_proof_that_the_kernel_refutes_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    refuted = Answer("refuted", "A", "a credit comes too early")
    monkeypatch.setattr("tilesim.proof.check.certify", lambda *_, **__: refuted)
    report = check(tiles, certificate=True)
    assert report.verdict == "bounded"
    assert report.reasons == (
        "the proof kernel refutes the proof, which is a bug in tilesim: a credit comes too early",
    )
    assert report.certificate is None
    assert report.covers == "the timed schedule; strictness practice; not a proof"
    assert not report.leanings
