"""What `tilesim capture` writes of programs that pages compile with nvcc, by NVRTC."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FLOATS = 512
TILES = 10
LAUNCH = {
    "schema": "tilesim.launch/1", "entry": "_Z5scalePKfPfif", "grid": [1], "block": [160],
    "cluster": [1], "dynamic_shared": 8320,
    "params": [
        {"kind": "pointer", "name": "in", "bytes": 4 * FLOATS * TILES},
        {"kind": "pointer", "name": "out", "bytes": 4 * FLOATS * TILES},
        {"kind": "scalar", "name": "tiles", "type": "u32", "value": TILES},
        {"kind": "scalar", "name": "factor", "type": "f32", "value": 2.0},
    ],
}  # fmt: skip
#: the mistake of ``examples/ring.cu``, and what a repair makes of it
WRONG, RIGHT = "init(&s.empty[i], 128);", "init(&s.empty[i], 4);"


def compiled(text: str, file: str) -> bytes:
    """PTX of a source with line information."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="needs the compile extra")
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), file.encode(), 0, [], [])
    options = [b"--gpu-architecture=compute_90a", b"--generate-line-info"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    code = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
    nvrtc.nvrtcGetPTX(program, code)
    return bytes(code).rstrip(b"\0")


def ring(folder: Path) -> None:
    """``captured`` and ``again``: ``examples/ring.cu`` as it is, and repaired."""
    text = (folder / "examples" / "ring.cu").read_text()
    assert text.count(WRONG) == 1
    for name, source in (("captured", text), ("again", text.replace(WRONG, RIGHT))):
        made = folder / name
        made.mkdir()
        (made / "scale.ptx").write_bytes(compiled(source, "examples/ring.cu"))
        (made / "scale.json").write_text(json.dumps(LAUNCH))
