"""These tests behave as outside CI, also in CI."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _outside_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
