"""``tilesim check --sass``: what is said of machine code beside the verdict on its PTX."""

from __future__ import annotations

import json
import signal
import stat
import sys
from pathlib import Path
from time import monotonic
from xml.etree import ElementTree

import pytest

from tests.capture.test_fatbin import entry, fatbin, program
from tests.cubin.compiled import image
from tilesim.cli import sass
from tilesim.cubin import ptxas
from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.sass import WIDTH
from tilesim.gpu import compile
from tilesim.gpu.errors import MissingExtra
from tilesim.translation import Difference, Relations, Translated, Undecided, Validation
from tilesim.translation.validation import RelationKind

from .conftest import Invoke, Write
from .kernels import GOOD
from .test_programs import CUBIN_LAUNCH, SOURCE, put

RIGHT = f"#define ARRIVES\n{SOURCE}"
ARRIVE = Translated("mbarrier.arrive", 0, "mbarrier.arrive.shared::cta.b64 _, [%r2];", None, "kept")
WEAKER = Difference(
    "lost", "deleted", "weaker", 0, ARRIVE.text,
    "The arrival orders the store before it, and the machine code does not.", 0x150, "SYNCS.ARRIVE",
)  # fmt: skip


def line_of(text: str, what: str) -> int:
    return next(n for n, line in enumerate(text.split("\n"), 1) if what in line)


def answers(
    monkeypatch: pytest.MonkeyPatch,
    *differences: Difference,
    undecided: int = 0,
    lost: int = 0,
    always: str = "",
) -> list[tuple[str, str]]:
    """What the comparison is to say from now on; which code of which PTX it is asked about."""
    asked = []

    def validate(image: Image, function: Symbol, ptx: str) -> Validation:
        line = line_of(ptx, "mbarrier.arrive.")
        found = tuple(
            Difference(d.kind, d.rule, d.effect, line, d.text, d.sentence, d.pc, d.sass)
            for d in differences
        )
        asked.append((function.name, ptx))
        open_ = tuple(Undecided("order", line, ARRIVE.text, "two copies") for _ in range(undecided))
        if always:
            open_ += (Undecided(always, line, always, "its order", always=True),) * 2
        release: RelationKind = "release"
        relations = {release: Relations(40, 2, lost, undecided)}
        return Validation(
            "k",
            image.arch,
            "13.0.88",
            (ARRIVE,),
            (),
            relations,
            found,
            open_,
        )

    monkeypatch.setattr(sass, "validate", validate)
    return asked


@pytest.fixture
def cubin(write: Write) -> str:
    write("k.cu", RIGHT)
    put("k.cubin", image(RIGHT).data, CUBIN_LAUNCH)
    return "k.cubin"


def test_a_proof_says_that_its_machine_code_was_validated(
    cubin: str, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    asked = answers(monkeypatch)
    result = tilesim_cli("check", cubin, "--sass")
    assert result.exit_code == 0
    assert result.output.startswith("PROVED k.cubin::k, machine code validated\n")
    said = " ".join(result.output.split())
    assert (
        "sass validated: the code of k.cubin against its PTX: 1 synchronising instruction "
        "(1 kept); 42 relations (40 shown, 2 explained)" in said
    )
    assert asked == [("k", image(RIGHT).ptx)]


def test_without_it_a_proof_leans_on_machine_code_that_does_what_the_ptx_does(
    cubin: str, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    answers(monkeypatch)

    def leanings(*options: str) -> set[str]:
        result = tilesim_cli("check", cubin, "--format", "json", *options)
        return {one["name"] for one in json.loads(result.stdout)["results"][0]["leanings"]}

    assert leanings() == {"program-order", "machine-code"}
    assert leanings("--sass") == {"program-order", "machine-values"}
    denied = tilesim_cli("check", cubin, "--deny", "machine-code")
    assert denied.exit_code == 1
    assert "machine code that ptxas makes" in denied.output
    assert tilesim_cli("check", cubin, "--sass", "--deny", "machine-code").exit_code == 0


def test_a_loss_fails_the_machine_code_and_not_the_ptx(
    cubin: str, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    answers(monkeypatch, WEAKER, lost=1)
    result = tilesim_cli("check", cubin, "--sass")
    assert result.exit_code == 1
    first, *lines = result.output.splitlines()
    assert first == "FAILED k.cubin::k in machine code, PROVED in PTX  (translation)"
    said = " ".join(" ".join(lines).split())
    assert "translation: The arrival orders the store before it, and the machine code" in said
    assert "PTX of k: has mbarrier.arrive.shared::cta.b64 " in said
    assert "SASS of k: has SYNCS.ARRIVE at 0x150" in said
    assert "k.cu:11" in said
    assert "covers of the PTX: every schedule of the CTA" in said
    assert "sass FAILED: the code of k.cubin against its PTX" in said
    assert "43 relations (40 shown, 2 explained, 1 lost)" in said


def test_every_format_has_it(
    cubin: str, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    answers(monkeypatch, WEAKER, lost=1)

    def report(form: str) -> str:
        return tilesim_cli("check", cubin, "--sass", "--format", form).stdout

    (entry,) = json.loads(report("json"))["results"]
    code = entry["machine_code"]
    assert (entry["verdict"], code["verdict"], code["without"]) == (
        "failed", "failed", "proved",
    )  # fmt: skip
    assert [f["rule"] for f in entry["findings"]] == ["translation"]
    assert code["relations"] == {
        "release": {"shown": 40, "explained": 2, "lost": 1, "undecided": 0}
    }
    (difference,) = code["differences"]
    assert (difference["effect"], difference["pc"], difference["sass"]) == (
        "weaker", 0x150, "SYNCS.ARRIVE",
    )  # fmt: skip
    log = json.loads(report("sarif"))
    (found,) = log["runs"][0]["results"]
    assert (found["ruleId"], found["level"]) == ("translation", "error")
    assert "the SASS is SYNCS.ARRIVE at 0x150" in found["message"]["text"]
    assert ARRIVE.text.split()[0] in json.dumps(found["locations"])
    suite = ElementTree.fromstring(report("junit"))
    assert suite.get("failures") == "1"
    assert "in machine code, PROVED in PTX" in "".join(suite.itertext())
    tilesim_cli("check", cubin, "--sass", "--html", "page.html")
    assert "FAILED: the code of k.cubin against its PTX" in Path("page.html").read_text()
    brief = tilesim_cli("check", cubin, "--sass", "-q").output
    assert "FAILED k.cubin::k in machine code, PROVED in PTX: translation: The arrival" in brief


def test_what_is_undecided_proves_nothing_of_the_machine_code(
    cubin: str, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    answers(monkeypatch, undecided=6)
    result = tilesim_cli("check", cubin, "--sass")
    assert result.exit_code == 3
    assert result.output.startswith("BOUNDED k.cubin::k, PROVED in PTX, machine code not decided\n")
    said = " ".join(result.output.split())
    assert "6 instructions and 6 relations of the machine code are undecided (the code of" in said
    assert "undecided: order at " in said
    assert "two copies" in said
    assert "and 2 more" in said
    assert tilesim_cli("check", cubin, "--sass", "--accept", "bounded").exit_code == 0


def test_what_machine_code_never_says_is_an_exception_that_is_named(
    cubin: str, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    answers(monkeypatch, always="bar.warp.sync")
    result = tilesim_cli("check", cubin, "--sass")
    assert result.exit_code == 0
    first, *_ = result.output.splitlines()
    assert first == "PROVED k.cubin::k, machine code validated but for bar.warp.sync"
    assert "not compared is the order of bar.warp.sync" in " ".join(result.output.split())
    assert tilesim_cli("check", cubin, "--sass", "--deny", "machine-code").exit_code == 1
    answers(monkeypatch, always="bar.warp.sync", undecided=1)
    assert tilesim_cli("check", cubin, "--sass").exit_code == 3


def test_a_comparison_of_nothing_validates_nothing(
    cubin: str, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    nothing = Validation("k", "sm_90a", None, (), (), {}, (), ())
    monkeypatch.setattr(sass, "validate", lambda *_: nothing)
    result = tilesim_cli("check", cubin, "--sass")
    assert result.exit_code == 3
    assert "none of its synchronising instructions is known" in result.output


def test_what_no_execution_reached_is_counted(
    cubin: str, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    found = Validation("k", "sm_90a", None, (ARRIVE,), (), {}, (), (), executed=3, unreached=2)
    monkeypatch.setattr(sass, "validate", lambda *_: found)
    said = " ".join(tilesim_cli("check", cubin, "--sass").output.split())
    assert "3 of them executed in both, 2 not reached within the steps of executions" in said


def test_a_kernel_in_the_dsl_is_emitted_and_compiled(
    write: Write, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    write("good.py", GOOD)
    result = tilesim_cli("check", "good.py", "--sass")
    assert result.exit_code == 0, result.output
    assert ", machine code validated" in result.output.splitlines()[0]
    assert "the CUDA C++ that tilesim emits (NVRTC" in " ".join(result.output.split())

    def missing(*_: object) -> None:
        raise MissingExtra("NVRTC is not installed, which compiling needs")

    monkeypatch.setattr(compile, "compile_cubin", missing)
    result = tilesim_cli("check", "good.py", "--sass")
    assert result.exit_code == 3
    first, *_ = result.output.splitlines()
    assert first.endswith(", PROVED as a program, machine code not compared")
    assert "not compared: NVRTC is not installed" in " ".join(result.output.split())


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ptxas that writes what it is told into a file, and has compiled `RIGHT` already."""
    (tmp_path / "made").write_bytes(image(RIGHT).data)
    path = tmp_path / "ptxas"
    path.write_text(
        f"#!{sys.executable}\n"
        "import shutil, sys\n"
        "if sys.argv[1] == '--version': print('Cuda compilation tools, release 13.0, V13.0.88')\n"
        "elif '.version 99' in open(sys.argv[-3]).read():\n"
        "    sys.exit('ptxas x.ptx, line 1; fatal   : Unsupported .version 99.0')\n"
        f"else: shutil.copy('{tmp_path}/made', sys.argv[-1])\n"
        f"open('{tmp_path}/told', 'a').write(' '.join(sys.argv[1:4]) + '\\n')\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(ptxas, "_places", lambda: iter(()))
    return path


def test_ptx_is_compiled_by_the_ptxas_that_is_named(
    fake: Path, write: Write, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    asked = answers(monkeypatch)
    ptx = image(RIGHT).ptx
    assert ptx is not None
    write("k.ptx", ptx)
    write("k.json", json.dumps({**CUBIN_LAUNCH, "registers": 40}))
    result = tilesim_cli("check", "k.ptx", "--sass", "--ptxas", str(fake))
    assert result.exit_code == 0, result.output
    assert f"what ptxas 13.0.88 ({fake}) makes of it" in " ".join(result.output.split())
    assert (fake.parent / "told").read_text().split("\n")[1].startswith("-arch=sm_90a -lineinfo")
    assert "--maxrregcount=40" in (fake.parent / "told").read_text()
    assert len(asked) == 1
    result = tilesim_cli("check", "k.ptx", "--sass")
    assert result.exit_code == 3
    assert "there is no ptxas: install the CUDA toolkit" in " ".join(result.output.split())
    write("k.ptx", ptx.replace(".version ", ".version 99.0 //"))
    result = tilesim_cli("check", "k.ptx", "--sass", "--ptxas", str(fake))
    assert "refuses the PTX: Unsupported .version 99.0" in " ".join(result.output.split())


def test_a_ptxas_that_is_none_is_a_mistake(cubin: str, tmp_path: Path, tilesim_cli: Invoke) -> None:
    for path, says in (
        ("none", "none cannot be run: No such file or directory"),
        (cubin, "cannot be run: "),
        (str(tmp_path), "has no ptxas and no bin/ptxas: name a ptxas or its toolkit"),
    ):
        result = tilesim_cli("check", cubin, "--sass", "--ptxas", path)
        assert result.exit_code == 2
        assert says in result.stderr


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs alarms")
def test_a_time_limit_is_of_the_machine_code_too(
    fake: Path, write: Write, tilesim_cli: Invoke
) -> None:
    ptx = image(RIGHT).ptx
    assert ptx is not None
    write("k.ptx", f"// slow\n{ptx}")
    write("k.json", json.dumps(CUBIN_LAUNCH))
    text = fake.read_text().replace("else: ", "else: __import__('time').sleep(60) or ")
    slow = fake.parent / "toolkit" / "bin" / "ptxas"
    slow.parent.mkdir(parents=True)
    slow.write_text(text)
    slow.chmod(0o755)
    begin = monotonic()
    options = "--sass", "--ptxas", "toolkit", "--time-limit", "2s"
    result = tilesim_cli("check", "k.ptx", *options)
    assert monotonic() - begin < 30
    assert result.exit_code == 3
    first, *lines = result.output.splitlines()
    assert first == "BOUNDED k.ptx::k, PROVED in PTX, machine code not compared"
    assert "its time limit of 2 s is used up" in " ".join(" ".join(lines).split())


def test_an_interrupt_keeps_the_verdict_on_the_ptx(
    cubin: str, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sass, "validate", interrupted)
    result = tilesim_cli("check", cubin, "--sass")
    assert result.exit_code == 130
    assert result.output.startswith("BOUNDED k.cubin::k, PROVED in PTX, machine code not compared")
    assert "interrupted while checking k.cubin::k" in result.output


def test_what_was_rechecked_is_the_proof_of_the_ptx(
    cubin: str, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    heads = []
    for differences, lost in (((), 0), ((WEAKER,), 1)):
        answers(monkeypatch, *differences, lost=lost)
        result = tilesim_cli("check", cubin, "--sass", "--recheck")
        heads.append(result.output.splitlines()[0])
    assert heads == [
        "PROVED k.cubin::k, rechecked, machine code validated",
        "FAILED k.cubin::k in machine code, PROVED in PTX, rechecked  (translation)",
    ]


def test_a_cubin_beside_the_ptx_is_taken_if_it_was_made_of_it(
    fake: Path, write: Write, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    answers(monkeypatch)
    ptx = image(RIGHT).ptx
    assert ptx is not None
    write("k.ptx", f"// a comment\n{ptx}")
    write("k.json", json.dumps(CUBIN_LAUNCH))
    Path("k.cubin").write_bytes(image(RIGHT).data)
    said = " ".join(tilesim_cli("check", "k.ptx", "--sass").output.split())
    assert "validated: the code of k.cubin against its PTX" in said
    Path("k.cubin").write_bytes(image(SOURCE).data)
    result = tilesim_cli("check", "k.ptx", "--sass", "--ptxas", str(fake))
    said = " ".join(result.output.split())
    assert result.exit_code == 3
    assert "machine code not compared" in said
    assert "the code of k.cubin is of other PTX, and is not what ptxas 13.0.88" in said
    Path("k.cubin").write_bytes(image(RIGHT, lines=False).data)
    said = " ".join(tilesim_cli("check", "k.ptx", "--sass", "--ptxas", str(fake)).output.split())
    assert "validated: the code of k.cubin, which is what ptxas 13.0.88" in said
    said = " ".join(tilesim_cli("check", "k.ptx", "--sass").output.split())
    assert "the code of k.cubin has no lines; there is no ptxas" in said
    said = tilesim_cli("check", "k.ptx", "--sass", "-q").output
    assert "machine code not compared: the code of k.cubin has no lines; there is" in said


def test_code_of_another_architecture_of_the_family_is_not_passed_over(
    fake: Path, write: Write, monkeypatch: pytest.MonkeyPatch, tilesim_cli: Invoke
) -> None:
    answers(monkeypatch)
    ptx = image(RIGHT).ptx
    assert ptx is not None
    plain_target = ptx.replace(".target sm_90a", ".target sm_90").encode()
    for text, made, says in (
        (ptx.encode(), RIGHT, "machine code validated"),
        (plain_target, SOURCE, "the code of prog is of other PTX, and is not what ptxas"),
        (plain_target, RIGHT, "the code of prog, which is what ptxas 13.0.88"),
    ):
        write("prog", "")
        parts = fatbin(entry(text), entry(image(made).data, kind=2))
        put("prog", program((64, parts)), CUBIN_LAUNCH)
        result = tilesim_cli("check", "./prog", "--sass", "--ptxas", str(fake))
        assert says in " ".join(result.output.split()), (says, result.output)
    write("k.ptx", ptx.replace(".target sm_90a", ".target sm_100a"))
    write("k.json", json.dumps(CUBIN_LAUNCH))
    Path("k.cubin").write_bytes(image(SOURCE).data)
    said = " ".join(tilesim_cli("check", "k.ptx", "--sass", "--ptxas", str(fake)).output.split())
    assert "the code of k.cubin for sm_90a is of other PTX" in said


def test_what_does_not_go_together(cubin: str, tilesim_cli: Invoke) -> None:
    for options, says in (
        (("--ptxas", "x"), "--ptxas compiles for --sass: add --sass"),
        (("--sass", "--for-all", "n"), "leave out --for-all"),
        (("--sass", "--replay", "w.json"), "leave out --replay"),
    ):
        result = tilesim_cli("check", cubin, *options)
        assert result.exit_code == 2
        assert says in result.output


def without(cubin: Image, opcode: str) -> bytes:
    """The cubin with a NOP in the place of the first instruction of this opcode."""
    (symbol,) = (one for one in cubin.functions if one.name == "k")
    (code,) = disassemble(cubin, (symbol,))
    section = cubin.section(".text.k")
    assert section is not None
    data = bytearray(cubin.data)
    places = sorted(code.code.values(), key=lambda one: one.pc)
    gone = next(one.pc for one in places if one.opcode.startswith(opcode) and not one.guard)
    nop = next(one.pc for one in places if one.base == "NOP")
    at, to = section.offset + nop, section.offset + gone
    data[to : to + WIDTH] = data[at : at + WIDTH]
    return bytes(data)


def test_an_instruction_that_is_taken_out_of_the_machine_code_is_missed(
    cubin: str, tilesim_cli: Invoke
) -> None:
    """By the comparison itself: the code that NVRTC makes, and without its barrier."""
    result = tilesim_cli("check", cubin, "--sass")
    assert result.output.startswith("PROVED k.cubin::k, machine code validated\n"), result.output
    put(cubin, without(image(RIGHT), "BAR.SYNC"), CUBIN_LAUNCH)
    assert tilesim_cli("check", cubin).exit_code == 0
    result = tilesim_cli("check", cubin, "--sass")
    assert result.exit_code == 1
    assert result.output.startswith("FAILED k.cubin::k in machine code, PROVED in PTX")
    assert "k.cubin.ptx:42 | bar.sync" in result.output
    put("other.cubin", image(RIGHT).data, CUBIN_LAUNCH)
    several = tilesim_cli("check", cubin, "other.cubin", "--sass").stdout
    assert several.startswith(result.stdout)
    assert tilesim_cli("check", cubin, "other.cubin", "--sass", "-j", "2").stdout == several
