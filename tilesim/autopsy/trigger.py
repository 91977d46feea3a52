"""Core dumps of a program that runs: what the driver is told before it starts, and the dump made.

The driver makes a named pipe for each process that has a CUDA context, if
``CUDA_ENABLE_USER_TRIGGERED_COREDUMP`` is 1 by then. A byte that is written to it makes the dump,
while kernels run. Names of pipe and dump come from ``CUDA_COREDUMP_PIPE`` and
``CUDA_COREDUMP_FILE``; in them ``%h`` stands for the host, ``%p`` for the process, ``%t`` for the
time (CUDA-GDB manual, "GPU core dump support"; `cuCoredumpSetAttributeGlobal` in cuda.h). The
context is lost with the dump: what the process asks of the GPU from then on fails.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from glob import escape, glob
from pathlib import Path
from socket import gethostname
from time import monotonic, sleep

from tilesim.autopsy.core_dump import CoreDump
from tilesim.autopsy.errors import DumpError
from tilesim.autopsy.processes import parent_of
from tilesim.records import dataclass, replace
from tilesim.wording import count

ENABLE = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP"
ON_EXCEPTION = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION"
PIPE = "CUDA_COREDUMP_PIPE"
FILE = "CUDA_COREDUMP_FILE"
FLAGS = "CUDA_COREDUMP_GENERATION_FLAGS"
LIGHTWEIGHT = "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP"

#: what a dump lacks: memory of which there may be 100 GB, and constant memory, without which the
#: parameters of a launch are there: with it, driver 580 cuts the dumps of kernels that Triton
#: divides into partitions of warps. Without ``skip_abort`` the process is aborted after a dump;
#: with it, its CUDA calls return errors
DEFAULT_FLAGS = "skip_global_memory,skip_local_memory,skip_constbank_memory,skip_abort"
#: without shared memory the words of mbarriers are not known
_NEEDED = "skip_shared_memory"
#: names that drivers choose: of cuda.h, and those that were seen
_DEFAULT_PIPES = ("corepipe.cuda.%h.%p", "corepipe_%h_%p")
_DEFAULT_DUMPS = ("core.cuda.%h.%p", "core_%t_%h_%p.nvcudmp")
#: what they are in a name
_STANDS = {"%p": r"(?P<p>\d{1,10})", "%h": "(?P<h>[^/]+)", "%t": r"\d+"}
#: bytes of a process's environment that are read
_MOST_ENVIRONMENT = 1 << 21
#: a second try, for a driver that reads more than one byte at a time
_MORE_BYTES = b"\0" * (1 << 16)


@dataclass(frozen=True)
class Names:
    """Patterns of the names of pipes and dumps; relative ones are in ``folder``. ``root`` is where
    the process sees ``/``, which differs in a container. Files of others than the user ``owner`` do
    not count, nor do links: a process may name any."""

    pipe: tuple[str, ...]
    dump: tuple[str, ...]
    folder: Path
    root: Path = Path("/")
    owner: int | None = None

    def of(self, pid: int | str) -> Names:
        """Those of one process, by its number as it knows itself."""
        own = [tuple(n.replace("%p", str(pid)) for n in names) for names in (self.pipe, self.dump)]
        return replace(self, pipe=own[0], dump=own[1])

    def pipes(self) -> tuple[Path, ...]:
        """The pipes that there are."""
        return tuple(self._found(self.pipe, stat.S_ISFIFO))

    def dumps(self) -> tuple[Path, ...]:
        """The dumps that there are, whole or not."""
        return tuple(self._found(self.dump, stat.S_ISREG))

    def process_of(self, dump: Path) -> int | None:
        """The process of this host that a dump's name says; None if it says none."""
        for pattern in self.dump:
            parts = re.split("(%[pht])", str(self.folder / pattern))
            if any(parts.count(key) > 1 for key in _STANDS):
                continue
            text = "".join(_STANDS.get(part) or re.escape(part) for part in parts)
            named = re.fullmatch(re.escape(str(self.root).rstrip("/")) + text, str(dump))
            if named and "%p" in parts:
                host = named.groupdict().get("h")
                return int(named["p"]) if host in (None, gethostname()) else None
        return None

    def _found(self, patterns: Iterable[str], kind: Callable[[int], bool]) -> Iterator[Path]:
        found: set[str] = set()
        for pattern in patterns:
            path = self.root / str(self.folder / pattern).lstrip("/")
            found.update(glob("*".join(map(escape, re.split("%[pht]", str(path))))))
        for name in sorted(found):
            with suppress(OSError):
                status = os.lstat(name)
                if kind(status.st_mode) and self.owner in (None, status.st_uid):
                    yield Path(name)


@dataclass(frozen=True)
class Prepared:
    """A program's environment with which it can be dumped; ``notes`` say what of the given one has
    been changed. ``own``: no other program's pipes have these names; ``shared``: others' dumps may
    have them."""

    environment: Mapping[str, str]
    names: Names
    own: bool = True
    notes: tuple[str, ...] = ()
    shared: bool = False


def prepared(given: Mapping[str, str], pipes: Path, dumps: Path) -> Prepared:
    """Variables for a program: pipes are made in the folder ``pipes``, which is its alone, dumps in
    ``dumps``.

    Those that are set in ``given`` stay, except for what would keep shared memory out of dumps.
    """
    notes = []
    environment = {
        ON_EXCEPTION: "1", FLAGS: DEFAULT_FLAGS, PIPE: str(pipes / "pipe.%h.%p"),
        # dumps of several programs may be in one folder: the name of this one's pipes parts them
        FILE: str(dumps / f"{pipes.name}.%h.%p.nvcudmp"), **given, ENABLE: "1",
    }  # fmt: skip
    flags = [flag.strip() for flag in environment[FLAGS].split(",")]
    if _NEEDED in flags:
        environment[FLAGS] = ",".join(flag for flag in flags if flag != _NEEDED)
        notes.append(f"{_NEEDED} is taken out of {FLAGS}: mbarriers are in shared memory")
    if environment.get(LIGHTWEIGHT, "0") != "0":
        environment[LIGHTWEIGHT] = "0"
        notes.append(f"{LIGHTWEIGHT} is set to 0: mbarriers are in shared memory")
    names = _names(environment, Path.cwd())
    return Prepared(environment, names, PIPE not in given, tuple(notes), FILE in given)


def _names(environment: Mapping[str, str], folder: Path) -> Names:
    pipe, dump = environment.get(PIPE), environment.get(FILE)
    return Names((pipe,) if pipe else _DEFAULT_PIPES, (dump,) if dump else _DEFAULT_DUMPS, folder)


def names_of(pid: int, proc: Path = Path("/proc")) -> Names:
    """Where pipe and dump of a process are, by the environment with which it was started.

    Programs that change their titles overwrite what can be seen of that. Then it is that of the
    process that has started it, and so on, and at last that of this process.

    Raises:
        DumpError: there is no such process, it is another user's, or no variables are found.
    """
    own = proc / str(pid)
    try:
        environment = _environment_of(pid, proc)
        folder = Path(os.readlink(own / "cwd"))
        apart = os.readlink(own / "ns" / "mnt") != os.readlink(proc / "self" / "ns" / "mnt")
        status = (own / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise DumpError(f"there is no process {pid} here") from None
    except PermissionError:
        raise DumpError(
            f"process {pid} cannot be looked at: run tilesim as the user that runs it, or as root"
        ) from None
    parent = parent_of(pid, proc)
    while environment.get(ENABLE) != "1" and parent:
        with suppress(OSError):
            environment = _environment_of(parent, proc)
        parent = parent_of(parent, proc)
    if environment.get(ENABLE) != "1":
        environment = dict(os.environ)
    if environment.get(ENABLE) != "1":
        raise DumpError(
            f"process {pid} was started without {ENABLE}=1, as far as can be seen: start the "
            "program with `tilesim watch -- ...`, or with that variable; if it was, set it, and "
            f"{PIPE} and {FILE} as there, for tilesim as well"
        )
    # the last is its number as it knows itself
    number = re.search(r"^NSpid:.*?(\d+)$", status, re.MULTILINE)
    user = re.search(r"^Uid:\s*\d+\s+(\d+)", status, re.MULTILINE)
    return replace(
        _names(environment, folder).of(number[1] if number else pid),
        root=own / "root" if apart else Path("/"),
        owner=int(user[1]) if user else None,
    )


def _environment_of(pid: int, proc: Path) -> dict[str, str]:
    with (proc / str(pid) / "environ").open("rb") as file:
        text = os.fsdecode(file.read(_MOST_ENVIRONMENT))
    return dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)


# ------------------------------------------------------------------ a dump is made


@dataclass(frozen=True)
class Limits:
    """Seconds: how long a dump may take to begin, or to grow by a byte; after how many a pipe gets
    more bytes; how often is looked; for how long a size has to stay."""

    begin: float = 20.0
    stall: float = 20.0
    again: float = 2.0
    look: float = 0.05
    settle: float = 0.25


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Made:
    """Dumps that are whole, how many pipes were written to, and what went wrong, a line each."""

    dumps: tuple[Path, ...]
    asked: int
    problems: tuple[str, ...] = ()


def dump_of(pid: int, limits: Limits = DEFAULT_LIMITS, proc: Path = Path("/proc")) -> Path:
    """Has the driver dump a process; the dump.

    Raises:
        DumpError: it cannot be dumped, or no dump comes.
    """
    names = names_of(pid, proc)
    made = make_dumps([names], limits, lambda: parent_of(pid, proc) is not None)
    if made.dumps:
        return made.dumps[0]
    if made.problems:
        raise DumpError(f"process {pid}: {made.problems[0]}")
    where = " or ".join(str(names.folder / name) for name in names.pipe)
    raise DumpError(
        f"process {pid} has no pipe for dumps ({where}): it has no CUDA context; name the process "
        "that uses the GPU, as nvidia-smi shows it"
    )


class States:
    """Dumps that come or change from now on."""

    def __init__(self, names: Iterable[Names]) -> None:
        self._names = tuple(names)
        self._before = {path: _state(path) for path in self._paths()}

    def _paths(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(path for names in self._names for path in names.dumps()))

    def changed(self) -> dict[Path, tuple[int, int]]:
        """Size and time of those that have come or changed."""
        found = {path: _state(path) for path in self._paths()}
        return {path: state for path, state in found.items() if state != self._before.get(path)}

    def made(self) -> Made:
        """Those that have come or changed, as they are now."""
        whole, problems = [], []
        for path in self.changed():
            try:
                CoreDump(path)
            except DumpError as error:
                problems.append(str(error))
            else:
                whole.append(path)
        return Made(tuple(whole), 0, tuple(problems))


def make_dumps(
    names: Iterable[Names],
    limits: Limits = DEFAULT_LIMITS,
    alive: Callable[[], bool] = lambda: True,
) -> Made:
    """Has the driver dump all processes whose pipes have these names, and waits for the files.

    ``alive``: whether any of them still runs; what has ended writes nothing more.
    """
    wanted = tuple(names)
    states = States(wanted)
    problems: list[str] = []
    asked = [
        path
        for path in dict.fromkeys(path for one in wanted for path in one.pipes())
        if _written(path, b"1", problems)
    ]
    if not asked:
        return Made((), 0, tuple(problems))
    waiting = _Waiting(states, len(asked), limits)
    more = monotonic() + limits.again
    while not waiting.over():
        ended = not alive()
        if waiting.look() or ended:
            break
        if not waiting.sizes and monotonic() > more:
            more = float("inf")
            for path in asked:
                _written(path, _MORE_BYTES, [])
        sleep(limits.look)
    made = states.made()
    return Made(made.dumps, len(asked), (*problems, *made.problems, *waiting.missing()))


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return -1, 0
    return found.st_size, found.st_mtime_ns


def _written(pipe: Path, data: bytes, problems: list[str]) -> bool:
    """Whether a pipe took the bytes: something reads it."""
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)
    except OSError as error:
        # of a process that has ended, a pipe without a reader stays
        if error.errno not in (errno.ENXIO, errno.ENOENT, errno.EPIPE):
            problems.append(f"{pipe}: it cannot be written: {error.strerror}")
        return False
    return True


class _Waiting:
    """Dumps that are being written. A driver writes the table of sections last, at the end of the
    file: one that can be opened, and does not change, is whole."""

    def __init__(self, states: States, asked: int, limits: Limits) -> None:
        self._states, self._asked, self._limits = states, asked, limits
        self._started = self._grown = monotonic()
        self._since: dict[Path, float] = {}
        self._whole: set[Path] = set()
        self.sizes: dict[Path, tuple[int, int]] = {}

    def over(self) -> bool:
        """Whether none comes or grows any more."""
        if not self.sizes:
            return monotonic() - self._started > self._limits.begin
        return monotonic() - self._grown > self._limits.stall

    def look(self) -> bool:
        """Whether all are there and whole."""
        now = monotonic()
        for path, state in self._states.changed().items():
            if state != self.sizes.get(path):
                self.sizes[path] = state
                self._grown = self._since[path] = now
            elif now - self._since[path] >= self._limits.settle and path not in self._whole:
                self._since[path] = float("inf")  # once for each state
                with suppress(DumpError):
                    CoreDump(path)
                    self._whole.add(path)
        return len(self._whole) >= self._asked

    def missing(self) -> list[str]:
        """A line on those that have not come, if any."""
        number = self._asked - len(self._states.changed())
        if number <= 0:
            return []
        return [
            f"{count(number, 'dump')} did not come in {monotonic() - self._started:.0f} s, "
            "although the driver was asked: it may not make any under a debugger or sanitizer, "
            "under MPS, or where it cannot write"
        ]
