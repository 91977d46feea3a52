"""PTX of scripts that are run under the recorder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

_ROOT = Path(__file__).parents[3]


def recorded(script: str, target: str, *options: str) -> Iterator[tuple[str, str]]:
    """Each kernel that a script launches, with a number."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "script.py").write_text(script)
        command = [sys.executable, "-m", "tilesim.recording.host", "out", target, *options]
        command.append("script.py")
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        subprocess.run(
            command, check=False, cwd=folder, stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )  # fmt: skip
        for path in sorted((folder / "out").glob("*.ptx")):
            yield path.stem, path.read_text()
