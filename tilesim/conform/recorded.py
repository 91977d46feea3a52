"""What launches did and when, as a file: when each instruction was entered and left.

The file is NumPy's ``.npz`` without pickled objects: loading one runs no code.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from tilesim.errors import UsageError
from tilesim.files import write_whole
from tilesim.records import dataclass, field

#: of the file's layout
VERSION = 1
#: bytes that the arrays of a file may have, unpacked
MAX_BYTES = 1 << 30
#: what the file holds besides ``about``
ARRAYS = ("instances", "times", "ctas", "off", "apart")


@dataclass(frozen=True)
class About:
    """The kernel, with the fingerprint of its instructions, and the GPU."""

    kernel: str
    fingerprint: str
    device: str
    driver: str
    seed: int
    version: int = VERSION


@dataclass(frozen=True)
class Recorded:
    """Launches of a kernel.

    ``instances``: of shape (n, 4), CTA, warp, number of the instruction, and the how-manieth time
    the warp executes it. ``times``: of shape (n, 2, launches), in ns, when it was entered and left;
    NaN where a launch has not executed it. ``ctas`` are those recorded, ``off`` of shape (CTAs,
    launches) how far their clocks may be off in ns (those of one CTA have one clock). ``apart``:
    numbers of instructions that are left out: lanes of a warp need not execute them together.
    """

    about: About
    instances: NDArray[np.int64] = field(repr=False)
    times: NDArray[np.float64] = field(repr=False)
    ctas: NDArray[np.int64] = field(repr=False)
    off: NDArray[np.float64] = field(repr=False)
    apart: NDArray[np.int64] = field(repr=False)

    @property
    def launches(self) -> int:
        """How many there are."""
        return int(self.times.shape[2])

    def save(self, path: Path) -> None:
        """Writes the file."""
        about = np.frombuffer(json.dumps(asdict(self.about)).encode(), dtype=np.uint8)
        data = BytesIO()
        np.savez_compressed(
            data, about=about, instances=self.instances, times=self.times, ctas=self.ctas,
            off=self.off, apart=self.apart,
        )  # fmt: skip
        write_whole(path, data.getvalue())


def load(path: Path) -> Recorded:
    """Reads a file that `Recorded.save` has written.

    Raises:
        UsageError: it is none, or is too large.
    """
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} cannot be read: it is not a regular file")
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MAX_BYTES:
                raise UsageError(f"{path}: more than {MAX_BYTES >> 20} MiB unpacked")
        with np.load(path, allow_pickle=False) as arrays:
            about = _about(json.loads(bytes(arrays["about"]).decode()))
            found = Recorded(about, *(np.asarray(arrays[name]) for name in ARRAYS))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} is not a recording of launches: {error}") from error
    _check(found, path)
    return found


def _about(given: Mapping[str, Any]) -> About:
    about = About(**given)
    for name, kind in get_type_hints(About).items():
        if not isinstance(getattr(about, name), kind):
            raise ValueError(f"{name} is not of type {kind.__name__}")
    if about.version != VERSION:
        raise ValueError(f"version {about.version}, not {VERSION}")
    return about


def _check(found: Recorded, path: Path) -> None:
    """The shapes fit each other."""
    n, launches = len(found.instances), found.times.shape[-1]
    shapes = {
        "instances": (found.instances, "iu", (n, 4)), "times": (found.times, "f", (n, 2, launches)),
        "ctas": (found.ctas, "iu", (len(found.ctas),)),
        "off": (found.off, "f", (len(found.ctas), launches)),
        "apart": (found.apart, "iu", (len(found.apart),)),
    }  # fmt: skip
    for name, (array, kinds, shape) in shapes.items():
        if array.shape != shape or array.dtype.kind not in kinds:
            raise UsageError(f"{path}: {name} has shape {array.shape} of {array.dtype}")
    if not {*found.instances[:, 0].tolist()} <= {*found.ctas.tolist()}:
        raise UsageError(f"{path}: instructions of CTAs that were not recorded")
