"""One launch of a Gluon kernel, with ConSan or without it, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import Any

#: seconds a launch may take; compilation does not count
LIMIT = 20.0
#: seconds of a process with everything
PATIENCE = 280.0
_ASSERTION = re.compile(r"(\w+\.py):(\d+): .*?Assertion `(.*?)` failed")


@dataclass(frozen=True)
class Printed:
    """What a process has printed: its ``answers``, lines of JSON, and the ``rest``."""

    answers: list[dict[str, Any]]
    rest: str

    @property
    def found(self) -> str:
        """The assertions of ConSan's that failed, each once; empty if none did."""
        every = Counter(_ASSERTION.findall(self.rest))
        return "; ".join(f"found: {text} ({file}:{line})" for file, line, text in every)


def printed_by(*command: str, consan: bool, cache: str) -> Printed:
    """What a module of ``benchmarks`` prints; compiled kernels are kept in ``cache``."""
    mode = "consan" if consan else ""
    environment = os.environ | {"TRITON_CACHE_DIR": cache, "TRITON_INSTRUMENTATION_MODE": mode}
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=printed, stderr=subprocess.STDOUT, env=environment, text=True,
        )  # fmt: skip
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        printed.seek(0)
        lines = printed.read().splitlines()
    answers = [json.loads(line) for line in lines if line.startswith("{")]
    return Printed(answers, "\n".join(line for line in lines if not line.startswith("{")))
