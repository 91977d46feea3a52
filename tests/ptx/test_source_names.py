"""Names of parameters from the CUDA source; numbers that are passed instead of a launch's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilesim.cli import main
from tilesim.loader.ptx import module
from tilesim.ptx.source_names import parameter_names

PTX = (
    '.version 9.4\n.target sm_90a\n.address_size 64\n.file 1 "k.cu"\n'
    ".visible .entry _ZN1n1kIfEEvPfi(.param .u64 a, .param .u32 b, .param .f32 c)\n.reqntid 32\n"
    "{\n.reg .b32 %r<9>; .reg .pred %p;\n.loc 1 LINE 3\nld.param.u32 %r1, [b];\n"
    "setp.lt.s32 %p, %r1, 3;\n@%p bra E;\nbar.sync 0, 64;\nE: ret;\n}\n"
)
LAUNCH = {
    "schema": "tilesim.launch/1", "entry": "_ZN1n1kIfEEvPfi", "grid": [1], "block": [32],
    "params": [
        {"kind": "pointer", "name": "out", "bytes": 64},
        {"kind": "scalar", "name": "turns", "type": "u32", "value": 5},
        {"kind": "scalar", "name": "", "type": "f32", "value": 1.0},
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is written lies in the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(source: str, line: int = 3) -> tuple[str, ...]:
    Path("k.cu").write_text(source)
    Path("k.ptx").write_text(PTX.replace("LINE", str(line)))
    found = module("k.ptx")
    return parameter_names(found, found.entries[0])


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("template <typename T>\n__global__ void __launch_bounds__(128, 1)\n"
         "k(T *__restrict__ out, const int turns, // with (\n  Pair<T, 4> p = {1, 2}) {}",
         ("out", "turns", "p")),
        ("\n\n__global__ void k(float (&out)[4], int turns, float x[2]) {", ("", "turns", "x")),
        ("\n\n__global__ void k(float *, int, float) {", ("", "", "")),
        # another number of parameters, another kernel, a call, one that comes later
        ("\n\n__global__ void k(float *out, int turns) {", ()),
        ("\n\n__global__ void kk(float *a, int b, float c) {", ()),
        ("\n\nvoid k(float *a, int b, float c) {", ()),
        ("\n\n\n\n__global__ void k(float *a, int b, float c) {", ()),
    ],
)  # fmt: skip
def test_names_of_parameters(source: str, found: tuple[str, ...]) -> None:
    assert names(source) == found


def test_without_the_source_none_are_known() -> None:
    names("")
    Path("k.cu").unlink()
    found = module("k.ptx")
    assert parameter_names(found, found.entries[0]) == ()


def test_a_template_of_a_launch_has_them() -> None:
    names("\n\n__global__ void k(float *out, int turns, float) {")
    text = CliRunner().invoke(main, ["launch-template", "k.ptx"]).output
    assert [p["name"] for p in json.loads(text)["params"]] == ["out", "turns", "c"]


def check(*arguments: str) -> tuple[int, str]:
    names("")
    Path("k.json").write_text(json.dumps(LAUNCH))
    result = CliRunner().invoke(main, ["check", *arguments])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize("name", ["turns", "1", "b"])
def test_a_number_is_passed_instead_of_the_launchs(name: str) -> None:
    code, text = check("k.ptx", "--param", f"{name}=2")
    assert code == 0
    assert text.startswith("PROVED k.ptx::n::k<float>[turns=2]")
    assert "launched with turns = 2" in text
    code, text = check("k.ptx", "--param", f"{name}=0x3")
    assert (code, text.split()[0]) == (1, "FAILED")
    again, other = check(f"k.ptx::n::k<float>[{name}=2]")
    assert (again, other.split()[0]) == (0, "PROVED")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("turns=-1", "k.ptx: turns: -1 does not fit u32 (0 to 4294967295)"),
        ("turns=4294967296", "does not fit u32"),
        ("turns=1.5", "k.ptx: turns takes an integer of type u32, not '1.5'"),
        ("out=3", "k.ptx: out is a pointer, no number"),
        ("turn=3", "n::k<float> has no parameter turn (did you mean turns?); it takes the numbers"),
        ("3=3", "has no parameter 3"),
        ("2=1e99", "does not fit f32"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(given: str, says: str) -> None:
    code, text = check("k.ptx", "--param", given)
    assert code == 2
    assert says in text
