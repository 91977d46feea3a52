"""Results that are written to files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilesim.cli.options import write_file
from tilesim.errors import UsageError


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


def test_what_a_link_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old\n")
    link = tmp_path / "link"
    link.symlink_to("there")
    write_file(link, "new\n")
    assert link.is_symlink()
    assert (tmp_path / "there").read_text() == "new\n"


def test_a_device_is_written_to() -> None:
    write_file(Path("/dev/null"), "text\n")
    assert Path("/dev/null").is_char_device()
