"""The folder that captured kernels are written to: ``NAME.ptx`` with its ``NAME.json``.

Beside them ``NAME.cubin`` is the machine code, if the program has some that says of which lines of
the PTX it is made.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tilesim.errors import UsageError
from tilesim.files import write_whole
from tilesim.ptx.demangle import readable
from tilesim.ptx.description import dumps
from tilesim.ptx.launch import Launch, without_contents
from tilesim.wording import count

#: names of templates have no end
_LONGEST = 80


class Folder:
    """Where kernels go: one pair of files per kernel and launch."""

    def __init__(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error
        self.path = path
        self._names: dict[str, int] = {}
        self._seen: set[tuple[str, Launch]] = set()
        self._repeats = 0
        self._skipped = 0

    def is_new(self, ptx: str, launch: Launch) -> bool:
        """Whether a launch differs from those before in more than what memory holds. It is counted;
        if it is new it is to be saved, or skipped."""
        key = ptx, without_contents(launch)
        if key in self._seen:
            self._repeats += 1
            return False
        self._seen.add(key)
        return True

    def save(self, ptx: str, launch: Launch, cubin: bytes = b"") -> None:
        """Writes the pair, with the machine code if there is some, and says so."""
        name = self.write(ptx, launch, cubin)
        grid = "x".join(map(str, launch.grid))
        say(f"captured {name}: {grid} CTAs{launch.about and f', {launch.about}'}")

    def write(self, ptx: str, launch: Launch, cubin: bytes = b"") -> str:
        """Writes the pair, and beside it ``cubin``, if it is not empty; its name."""
        stem = file_stem(launch.entry)
        number = self._names.get(stem, 0)
        self._names[stem] = number + 1
        name = f"{stem}_{number}" if number else stem
        write_whole(self.path / f"{name}.ptx", ptx)
        write_whole(self.path / f"{name}.json", dumps(launch))
        if cubin:
            write_whole(self.path / f"{name}.cubin", cubin)
        return name

    def skip(self, skipped: object) -> None:
        """Says what is not captured."""
        self._skipped += 1
        say(f"skipped {skipped}")

    @property
    def written(self) -> int:
        """Pairs of files."""
        return sum(self._names.values())

    def summary(self) -> None:
        """Says how much there is."""
        launches = count(self.written, "kernel and launch configuration")
        many = count(self._repeats + len(self._seen), "launch", "launches")
        of = f" of {many}, {self._repeats:,} of them repeated" if self._repeats else ""
        left = f"; {count(self._skipped, 'configuration')} not launched" if self._skipped else ""
        say(f"captured {launches}{of} into {self.path}{left}")


def file_stem(entry: str) -> str:
    """A file name for a kernel: what C++ calls it, without templates' arguments."""
    name = readable(entry)
    if name.startswith("_Z"):
        name = "".join(re.findall(r"(?<=\d)[A-Za-z_]\w*", name)[:1]) or name
    plain = re.sub(r"\W+", "_", name.partition("<")[0].rpartition("::")[2]).strip("_")
    return plain[:_LONGEST] or "kernel"


def say(text: str) -> None:
    """To the user, beside what the program prints."""
    print(text, file=sys.stderr, flush=True)
