"""How many steps of Python something takes: what grows with them does so on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(action: Callable[[], object], folder: str) -> int:
    """How many lines of the modules below ``folder`` it executes, each turn of a loop for one."""
    executed = 0

    def line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal executed
        executed += event == "line"
        return line

    def call(frame: FrameType, event: str, argument: object) -> Any:
        return line if folder in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        action()
    finally:
        sys.settrace(before)
    return executed
