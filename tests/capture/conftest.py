"""The fixture that captures a program."""

from __future__ import annotations

import pytest

from tests.capture.tools import Capture


@pytest.fixture
def capture(capfd: pytest.CaptureFixture[str]) -> Capture:
    """``capture(folder, program, *arguments)``."""
    return Capture(capfd)
