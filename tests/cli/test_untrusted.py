"""Files that others wrote: what they name is not read, what they say cannot command a terminal."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tilesim.files import MAX_SOURCE, NoRegularFile, read_regular, source_lines
from tilesim.wording import printable

from .conftest import Invoke, Write

SECRET = "the first line of a secret"
#: deadlocks in its one instruction, which it says is line 1 of another file
TEXT = """tile 1
source 1 "{source}"
kernel {name}: target=sm_90a, warps=1
mbarriers b: 1
body {{
  role "{role}" warps 0 {{
    if %lane_id < 1 {{
      mbarrier.init b[0], 2
      mbarrier.arrive b[0]
      mbarrier.wait b[0], 0 @1:1
    }}
  }}
}}
"""


def text(source: str, name: str = "k", role: str = "r") -> str:
    """A kernel that fails."""
    return TEXT.format(source=source, name=name, role=role)


FORMATS = ("text", "json", "sarif", "github", "junit")


def all_formats(tilesim_cli: Invoke, *args: str) -> dict[str, str]:
    """What each format and the page say."""
    said = {f: tilesim_cli("check", *args, "--format", f).output for f in FORMATS}
    tilesim_cli("check", *args, "--html", "page.html")
    return {**said, "html": Path("page.html").read_text()}


@pytest.fixture
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file outside of the working folder."""
    path = tmp_path_factory.mktemp("elsewhere") / "secret.py"
    path.write_text(f"{SECRET}\n")
    return path


# ------------------------------------------------------------------ files


def test_a_file_outside_of_the_working_folder_is_not_shown(
    write: Write, tilesim_cli: Invoke, secret: Path
) -> None:
    name = write("k.tile", text(str(secret)))
    for form, said in all_formats(tilesim_cli, name).items():
        assert "deadlock" in said, form
        assert SECRET not in said, form
    assert f"no lines of {secret} are shown" in tilesim_cli("check", name).stderr


@pytest.mark.parametrize("way", ["a root", "below the working folder"])
def test_a_file_that_may_be_shown_is_shown(
    write: Write, tilesim_cli: Invoke, secret: Path, way: str
) -> None:
    if way == "a root":
        args = [write("k.tile", text(str(secret))), "--source-root", str(secret.parent)]
    else:
        args = [write("k.tile", text(write("k.py", f"{SECRET}\n")))]
    for form, said in all_formats(tilesim_cli, *args).items():
        assert (SECRET in said) == (form not in ("json", "github")), form
    assert "no lines" not in tilesim_cli("check", *args).stderr


@pytest.mark.parametrize("way", ["link", "dots", "hidden", "git", "folder", "missing"])
def test_ways_around_it_show_nothing(
    write: Write, tilesim_cli: Invoke, secret: Path, way: str, tmp_path: Path
) -> None:
    write("k.tile", "")
    name = {"hidden": ".env", "git": ".git/config", "folder": "sub"}.get(way, "link.py")
    match way:
        case "link":
            (tmp_path / name).symlink_to(secret)
        case "dots":
            name = os.path.relpath(secret, tmp_path)
        case "folder":
            (tmp_path / name).mkdir()
        case "missing":
            pass
        case _:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(SECRET)
    write("k.tile", text(name))
    for form, said in all_formats(tilesim_cli, "k.tile").items():
        assert SECRET not in said, form


def test_a_check_says_of_its_own_files_only_that_they_are_not_shown(
    write: Write, tilesim_cli: Invoke, secret: Path
) -> None:
    name = write("k.tile", text(str(secret)))
    assert f"no lines of {secret} are shown" in tilesim_cli("check", name).stderr
    assert source_lines(str(secret)) == ()
    assert "are shown" not in tilesim_cli("check", write("k.tile", text("k.tile"))).stderr


@pytest.mark.parametrize("source", ["pipe", "/dev/zero", "/dev/stdin", "/proc/self/environ"])
def test_devices_and_pipes_are_not_waited_for(
    write: Write, tilesim_cli: Invoke, source: str, tmp_path: Path
) -> None:
    if source == "pipe":
        os.mkfifo(tmp_path / "pipe")
    name = write("k.tile", text(source))
    assert tilesim_cli("check", name, "--source-root", "/").exit_code == 1


@pytest.mark.parametrize("option", ["--replay", "--resume", "--launch", ""])
def test_a_pipe_is_no_input(write: Write, tilesim_cli: Invoke, tmp_path: Path, option: str) -> None:
    os.mkfifo(tmp_path / "pipe.tile")
    write("k.tile", text("k.py"))
    write("k.ptx", "")
    target = "k.ptx" if option == "--launch" else "k.tile"
    args = [target, option, "pipe.tile"] if option else ["pipe.tile"]
    result = tilesim_cli("check", *args)
    assert result.exit_code == 2
    assert re.search("pipe.tile( cannot be read)?: it is not a regular file", result.output)


def test_what_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.py"
    path.write_text("x" * 10)
    assert read_regular(path, 10) == b"x" * 10
    with pytest.raises(NoRegularFile, match="larger than 9 bytes"):
        read_regular(path, 9)


def test_a_huge_source_file_is_not_shown(write: Write, tilesim_cli: Invoke, tmp_path: Path) -> None:
    with (tmp_path / "huge.py").open("w") as file:
        file.write(f"{SECRET}\n")
        file.truncate(MAX_SOURCE + 1)
    result = tilesim_cli("check", write("k.tile", text("huge.py")))
    assert result.exit_code == 1
    assert SECRET not in result.output


def test_lines_of_a_python_target_anywhere_are_shown(
    tilesim_cli: Invoke, write: Write, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write("empty", "")
    path = tmp_path_factory.mktemp("other") / "k.py"
    path.write_text(
        "import tilesim as ts\n\n\n@ts.kernel(warps=1)\ndef k(k):\n    b = k.mbarriers('b')\n"
        "    k.mbarrier.init(b, 1)\n    k.mbarrier.wait(b, 0)  # here\n"
    )
    assert "8 | k.mbarrier.wait(b, 0)  # here" in tilesim_cli("check", str(path)).stdout


# ------------------------------------------------------------------ control characters

#: clears the screen, sets the title, turns the direction, halves a character, ends a line
EVIL = "\x1b[2J\x1b]0;title\x07\u202e\x9b31m\r"
ESCAPED = r"\u{1b}[2J\u{1b}]0;title\u{7}\u{202e}\u{9b}31m\u{d}"


def assert_harmless(said: str) -> None:
    """Nothing in it commands a terminal."""
    bad = {c for c in said if not c.isprintable() and c not in "\n\t"}
    assert not bad, bad


@pytest.mark.parametrize("where", ["role", "name", "source"])
def test_control_characters_in_names_are_escaped(
    write: Write, tilesim_cli: Invoke, where: str
) -> None:
    role, name, source = "r", "k", "k.py"
    match where:
        case "role":
            role = ESCAPED
        case "name":
            name = f"`{ESCAPED}`"
        case _:
            source = ESCAPED
    file = write("k.tile", text(source, name, role))
    for form, said in all_formats(tilesim_cli, file).items():
        assert_harmless(said)
        assert "title" in said, form


def test_control_characters_in_a_source_line_and_a_path_are_escaped(
    write: Write, tilesim_cli: Invoke, tmp_path: Path
) -> None:
    write("k.py", f"{SECRET}{EVIL}\n")
    file = write(f"a{EVIL}b.tile", text("k.py"))
    for form, said in all_formats(tilesim_cli, file).items():
        assert_harmless(said)
        assert form in ("json", "github") or SECRET in said
    for command in ("run", "show", "trace", "fuzz", "export"):
        assert_harmless(tilesim_cli(command, file).output)
        assert_harmless(tilesim_cli(command, f"{EVIL}missing.tile").output)


def test_colours_are_ours_only(write: Write, tilesim_cli: Invoke) -> None:
    from tilesim.cli.examine import Examination
    from tilesim.layout import Style
    from tilesim.loader import load_one
    from tilesim.report.text import result_text

    target = load_one(write("k.tile", text("k.py", f"`{ESCAPED}`", ESCAPED)))
    examine = Examination(
        False, "practice", 0, 0, None, 0, None, 1, 0, shrink=False, witness_dir=None
    )
    said = result_text(examine(target, None), Style(100, colour=True))
    assert "\x1b[31m" in said
    assert_harmless(re.sub(r"\x1b\[\d+m", "", said))
    assert "\x1b[2J" not in said


def test_a_name_does_not_begin_a_line_of_its_own(write: Write, tilesim_cli: Invoke) -> None:
    file = write("k.tile", text("k.py", r"`k\n::error::forged`", r"r\n::warning::forged"))
    for form in ("text", "github"):
        said = tilesim_cli("check", file, "--format", form).stdout
        assert not re.search(r"^\s*::(error|warning)::forged", said, re.MULTILINE), said


@pytest.mark.parametrize("width", range(60, 101, 4))
def test_no_line_of_a_text_is_a_command(
    write: Write, tilesim_cli: Invoke, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of a name after which a line is broken, nor of the name of a file."""
    monkeypatch.setenv("COLUMNS", str(width))
    file = write("k.tile", text("::error::forged", role="r " + "::error::forged ##[error]" * 3))
    for command in ("check", "check --suggest=10m", "run", "trace --text"):
        said = tilesim_cli(*command.split(), file).output
        assert "forged" in said
        assert not re.search(r"^\s*::|##\[", said, re.MULTILINE), said


@pytest.mark.parametrize("option", ["--suggest=10m", "--diff"])
def test_repairs_of_files_with_such_names_are_escaped(
    write: Write, tilesim_cli: Invoke, option: str
) -> None:
    python = (
        "import tilesim as ts\n\n\n@ts.kernel(warps=1)\ndef k(k):\n    b = k.mbarriers('b')\n"
        f"    with k.one_thread():\n        k.mbarrier.init(b, 64)  # {EVIL[:-1]}\n"
        "    k.sync_threads()\n    k.mbarrier.arrive(b)\n    k.mbarrier.wait(b, 0)\n"
    )
    files = [
        write(f"a{EVIL}\n::error::forged.py", python),
        write("k.tile", text(r"x\n::error::forged")),
    ]
    result = tilesim_cli("check", option, *files)
    assert "(proved)\n" in result.output
    assert_harmless(result.output)
    assert not re.search(r"^\s*::error", result.output, re.MULTILINE), result.output


def test_names_that_are_no_utf8_are_in_every_report(write: Write, tilesim_cli: Invoke) -> None:
    write("k.tile", text(r"a\u{dcff}.py"))
    os.rename("k.tile", "\udcff.tile")
    for form in FORMATS:
        result = tilesim_cli("check", "\udcff.tile", "--format", form, "-o", f"report.{form}")
        assert result.exit_code == 1, result.output
        assert "deadlock" in Path(f"report.{form}").read_text()
    sarif = Path("report.sarif").read_text()
    assert '"%FF.tile"' in sarif
    assert '"a%FF.py"' in sarif


def test_what_is_no_character_is_refused(write: Write, tilesim_cli: Invoke) -> None:
    result = tilesim_cli("check", write("k.tile", text(r"a\u{d800}.py")))
    assert result.exit_code == 2
    assert r"k.tile:2:12: expected an escape" in result.stdout


def test_a_file_with_colons_in_its_name(write: Write, tilesim_cli: Invoke) -> None:
    os.mkdir("a::b")
    file = write("a::b/c::d.tile", text("k.py"))
    for target in (file, f"{file}::k", "a::b"):
        assert tilesim_cli("check", target).stdout.startswith(f"FAILED {file}::k ")
    assert "has no kernel" in tilesim_cli("check", f"{file}::other").output


def test_a_result_written_as_json_is_what_the_file_says(write: Write, tilesim_cli: Invoke) -> None:
    file = write("k.tile", text("k.py", role=ESCAPED))
    said = json.loads(tilesim_cli("check", file, "--format", "json").stdout)
    (finding,) = said["results"][0]["findings"]
    assert finding["participants"][0]["role"] == EVIL


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("é ⚠️ 中", "é ⚠️ 中"),
        ("a\tb\n", "a\tb\n"),
        ("\x1b\x7f", r"\x1b\x7f"),
        ("\u2028\U000e0001", r"\u{2028}\u{e0001}"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown
