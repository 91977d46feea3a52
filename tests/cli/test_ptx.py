"""``tilesim check`` on PTX files, and ``launch-template``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilesim.cli import main

PTX = """.version 9.4
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry k(.param .u64 a)
.reqntid 32
{
.reg .pred %p<3>; .reg .b32 %r<9>;
mov.u32 %r1, smem; elect.sync _|%p0, -1;
@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
bar.warp.sync -1;
ARRIVE
L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
@!%p1 bra L;
ret;
}
"""
#: one that is no PTX
KERNEL = "tilesim.kernels.hopper.softmax::softmax"
LAUNCH = {
    "schema": "tilesim.launch/1", "entry": "k", "grid": [1], "block": [32], "dynamic_shared": 64,
    "params": [{"kind": "pointer", "name": "a", "bytes": 64}],
}  # fmt: skip


def files(folder: Path, arrive: str, launch: object = LAUNCH) -> str:
    path = folder / "k.ptx"
    path.write_text(PTX.replace("ARRIVE", arrive))
    (folder / "k.json").write_text(json.dumps(launch))
    return str(path)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, result.output


def test_a_wrong_kernel_fails_at_its_line_and_its_right_twin_is_proved(tmp_path: Path) -> None:
    code, text = run("check", files(tmp_path, ""))
    assert code == 1
    assert "deadlock" in text
    assert "k.ptx:13" in text
    right = files(tmp_path, "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];")
    code, text = run("check", right, "--launch", str(tmp_path / "k.json"))
    assert (code, text.split()[0]) == (0, "PROVED")


def test_what_is_not_modelled_is_unsupported_with_its_line(tmp_path: Path) -> None:
    code, text = run("check", files(tmp_path, "vadd.s32.s32.s32 %r1, %r2, %r3;"))
    assert code == 3
    assert text.startswith("UNSUPPORTED")
    assert "k.ptx:12" in text


def test_mistakes_are_one_line_errors(tmp_path: Path) -> None:
    path = files(tmp_path, "", {**LAUNCH, "block": [64]})
    code, text = run("check", path)
    assert code == 2
    assert "contradicts .reqntid 32" in text
    (tmp_path / "k.json").unlink()
    code, text = run("check", path)
    assert code == 2
    assert "launch-template" in text
    code, text = run("check", files(tmp_path, "mov.u32 %r1 3;"))
    assert code == 2
    assert "k.ptx:12:13" in text


def test_the_template_says_what_is_missing(tmp_path: Path) -> None:
    code, text = run("launch-template", files(tmp_path, ""))
    assert code == 0
    found = json.loads(text)
    assert (found["entry"], found["block"], found["grid"]) == ("k", [32], ["FILL_IN"])
    assert found["cluster"] == [1, 1, 1]
    path = files(tmp_path, "")
    text = Path(path).read_text()
    for says, cluster in (("", ["FILL_IN"]), (".reqnctapercluster 2", [2])):
        clusters = f".reqntid 32\n.explicitcluster {says}\n"
        Path(path).write_text(text.replace(".reqntid 32\n", clusters))
        assert json.loads(run("launch-template", path)[1])["cluster"] == cluster


@pytest.mark.parametrize(
    ("step", "cluster"),
    [
        ("mov.u32 %r2, %cluster_ctarank;", ["FILL_IN"]),
        ("mov.u32 %r2, %clusterid.x;", ["FILL_IN"]),
        ("mapa.shared::cluster.u32 %r2, %r1, 0;", ["FILL_IN"]),
        ("barrier.cluster.arrive.aligned;", ["FILL_IN"]),
        ("ld.shared::cluster.u32 %r2, [%r1];", ["FILL_IN"]),
        ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];", ["FILL_IN"]),
        ("fence.acq_rel.cluster;", [1, 1, 1]),
        ("mov.u32 %r2, %ctaid.x;", [1, 1, 1]),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, "
         "[%r2];", [1, 1, 1]),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
         "[%r1], [%rd1], 16, [%r2], %rs1;", ["FILL_IN"]),
    ],
)  # fmt: skip
def test_a_cluster_is_to_be_filled_in_where_the_ptx_uses_one(
    step: str, cluster: list[object], tmp_path: Path
) -> None:
    path = files(tmp_path, step)
    assert json.loads(run("launch-template", path)[1])["cluster"] == cluster
    entry, body = Path(path).read_text().split(".visible", 1)
    called = f".func f()\n{{\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b16 %rs<9>;\n{step}\n}}\n"
    Path(path).write_text(f"{entry}{called}.visible{body.replace(step, 'call f;')}")
    assert json.loads(run("launch-template", path)[1])["cluster"] == cluster


def test_other_commands_take_ptx_or_say_why_not(tmp_path: Path) -> None:
    right = files(tmp_path, "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];")
    code, text = run("run", right)
    assert (code, text.split()[0]) == (0, "RAN")
    assert "the protocol ran to its end" in text
    code, text = run("show", "--mir", right)
    assert (code, text.startswith("mir 2\n")) == (0, True)
    code, text = run("trace", right, "-o", str(tmp_path / "t.json"))
    assert code == 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    page = tmp_path / "r.html"
    code, text = run("check", files(tmp_path, ""), "--html", str(page), "--format", "github")
    assert code == 1
    assert text.startswith("::error file=")
    assert "mbarrier.try_wait" in page.read_text()
    for command in (("emit",), ("show",), ("fuzz",), ("sweep",)):
        code, text = run(*command, right)
        assert code == 2, command
        assert "is PTX" in text, command


def test_the_plain_form_is_shown(tmp_path: Path) -> None:
    right = files(tmp_path, "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];")
    (_, form), (code, text) = run("show", "--mir", right), run("show", "--mir", "--plain", right)
    assert (code, text.startswith("mir 2\n")) == (0, True)
    assert "mbarrier.wait" in form
    assert "mbarrier.try_wait" in text
    for wrong in (("show", "--plain", right), ("show", "--mir", "--plain", KERNEL)):
        assert run(*wrong) == (2, "error: --plain shows the plain form of PTX: add --mir\n")


def test_numbers_that_the_launch_passes_are_in_covers(tmp_path: Path) -> None:
    arrive = "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];"
    numbers = [{"kind": "scalar", "name": n, "type": "u32", "value": v} for n, v in
               (("n", 3), ("unknown", None))]  # fmt: skip
    params = [{"kind": "pointer", "name": "a", "bytes": 64}, *numbers]
    path = files(tmp_path, arrive, {**LAUNCH, "params": params, "about": "with a WORD"})
    text = Path(path).read_text()
    Path(path).write_text(text.replace(".u64 a)", ".u64 a, .param .u32 n, .param .u32 unknown)"))
    code, said = run("check", path, "--format", "json")
    assert code == 0, said
    (result,) = json.loads(said)["results"]
    assert result["covers"].endswith("; launched with n = 3; with a WORD")


def test_annotations_point_at_a_file_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source of PTX, or the PTX where that is elsewhere; the message has both."""
    monkeypatch.chdir(tmp_path)
    path = files(tmp_path, "")
    text = Path(path).read_text().replace("\nL:", "\n.loc 1 3 0\nL:", 1)
    Path(path).write_text(f'{text}.file 1 "k.cu"\n')
    for source, place in ((None, ("k.ptx", 14)), ("a\nb\nwait(b)\n", ("k.cu", 3))):
        if source is not None:
            Path("k.cu").write_text(source)
        _, said = run("check", "k.ptx", "--format", "github")
        assert said.startswith(f"::error file={place[0]},line={place[1]},"), said
        assert "(k.cu:3, k.ptx:14)" in said
        _, log = run("check", "k.ptx", "--format", "sarif")
        (finding,) = json.loads(log)["runs"][0]["results"]
        (location,) = finding["locations"]
        where = location["physicalLocation"]
        assert (where["artifactLocation"]["uri"], where["region"]["startLine"]) == place
        assert ("(k.cu:3)" in location["message"]["text"]) == (source is None)


def test_an_annotation_is_at_the_line_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the source was compiled in another folder."""
    path = Path(files(tmp_path, ""))
    lines = path.read_text().replace("L: mbar", ".loc 1 7 3\nL: mbar")
    path.write_text(f'{lines}.file 1 "/build/of/src/wait.cu"\n')
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "wait.cu").write_text("//\n" * 9)
    monkeypatch.chdir(tmp_path)
    said = run("check", "k.ptx", "--format", "github")[1]
    assert said.startswith("::error file=k.ptx,line=14,")
    said = run("check", "k.ptx", "--format", "github", "--source-root", ".")[1]
    assert said.startswith("::error file=src/wait.cu,line=7,")
    assert "(/build/of/src/wait.cu:7, k.ptx:14)" in said
    run("check", "k.ptx", "--sarif", "k.sarif", "--source-root", ".")
    found = json.loads(Path("k.sarif").read_text())["runs"][0]["results"][0]["locations"][0]
    assert found["physicalLocation"]["artifactLocation"]["uri"] == "src/wait.cu"
