"""``python -m tests.cli.update``: rewrites what the tests compare with, from the current outputs.

The pages docs/cli.md and docs/findings/*, and golden/demo.txt. Read the diff before committing it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from docs import generate_findings

from .conftest import ROOT
from .test_commands import DEMO
from .test_docs import BLOCK, PAGE, output, with_outputs, write_files


def main() -> None:
    """Rewrites the files."""
    os.chdir(ROOT)
    DEMO.write_text(output("tilesim demo"))
    generate_findings.write()
    page = PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:
        write_files(page, Path(folder))
        os.chdir(folder)
        text = BLOCK.sub(lambda m: f"```console\n{with_outputs(m.group(1))}```", page)
        os.chdir(ROOT)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
