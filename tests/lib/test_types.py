"""A kernel with types passes mypy's strict mode, as it stands in a user's repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lib.typed_kernel import typed

KERNEL = Path(__file__).with_name("typed_kernel.py")


def test_the_kernel_is_built() -> None:
    assert typed.build().warps == 8


def test_mypy_accepts_the_kernel_and_sees_a_mistake(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api", reason="needs mypy")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(KERNEL.read_text().replace("k.launch(grid=ctas)", 'k.launch(grid="all")'))
    out, err, status = api.run(["--strict", "--follow-imports=silent", str(KERNEL), str(wrong)])
    errors = [line for line in out.splitlines() if ": error:" in line]
    assert (status, len(errors)) == (1, 1), out + err
    assert "wrong.py" in errors[0]
    assert 'Argument "grid" to "launch"' in errors[0]
