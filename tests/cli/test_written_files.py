"""Results that are written to files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilesim.cli.group import internal_failure
from tilesim.cli.options import write_file
from tilesim.errors import UsageError

from . import kernels
from .conftest import Invoke, Write


def test_a_file_that_cannot_be_written_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.json"
    write_file(path, "old\n")
    path.chmod(0o640)
    written = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        written(self, data[:2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(UsageError, match="No space left"):
            write_file(path, "new\n")
    assert path.read_text() == "old\n"
    assert [*tmp_path.iterdir()] == [path]
    write_file(path, "new\n")
    assert path.read_text() == "new\n"
    assert path.stat().st_mode & 0o777 == 0o640


def test_names_that_are_no_utf8_are_escaped(tmp_path: Path) -> None:
    write_file(tmp_path / "report", "é \udcff\n")
    assert (tmp_path / "report").read_text() == "é \\udcff\n"


def test_what_a_link_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old\n")
    link = tmp_path / "link"
    link.symlink_to("there")
    write_file(link, "new\n")
    assert link.is_symlink()
    assert (tmp_path / "there").read_text() == "new\n"


def test_a_resume_file_below_a_file_is_refused(write: Write, tilesim_cli: Invoke) -> None:
    write("file", "")
    result = tilesim_cli("check", write("good.py", kernels.GOOD), "--resume", "file/x")
    assert result.exit_code == 2
    assert "error: cannot write file/x: " in result.stderr


def test_memory_that_is_not_there_is_no_bug() -> None:
    failed = internal_failure("k", MemoryError("8 TiB"), debug=False)
    assert (failed.code(), failed.message) == (2, "there is not enough memory: 8 TiB")


def test_a_device_is_written_to() -> None:
    write_file(Path("/dev/null"), "text\n")
    assert Path("/dev/null").is_char_device()
