"""Kernels in PTX, each with the description of a launch: in files, and in files of machine code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tilesim.arith.floats import FLOATS
from tilesim.arith.types import WIDTH
from tilesim.errors import TargetError, UsageError
from tilesim.ir.mir import Mir
from tilesim.limits import patient
from tilesim.loader.text import read_file
from tilesim.ptx.demangle import readable, shown
from tilesim.ptx.description import loads_all, require_fits
from tilesim.ptx.launch import Launch, Parameter, Scalar
from tilesim.ptx.syntax import Function, LaunchError, Module, target_of
from tilesim.records import dataclass, replace
from tilesim.wording import did_you_mean

if TYPE_CHECKING:  # most targets are no machine code
    from tilesim.loader.machine_code import EmbeddedPtx, MachineCode

SUFFIX = ".ptx"
DESCRIPTION = ".json"


@dataclass(frozen=True)
class PtxKernel:
    """An entry of a PTX file with one launch, which the file ``source`` describes; the PTX is read
    when the program is needed. ``embedded``: the text, if it stands in a file of machine code."""

    place: str
    launch: Launch
    source: str
    embedded: EmbeddedPtx | None = None

    @property
    def target(self) -> str:
        """What the module was compiled for, such as sm_90a; raises like `text`."""
        return target_of(self.text())

    @property
    def file(self) -> str:
        """What reports call the text."""
        return self.place if self.embedded is None else self.embedded.file

    def text(self) -> str:
        """The PTX.

        Raises:
            TargetError: the file cannot be read.
        """
        return read_file(Path(self.place)) if self.embedded is None else self.embedded.text

    def module(self) -> Module:
        """What the PTX says; raises like `module`."""
        if self.embedded is None:
            return module(self.place)
        return self.embedded.module(self.launch.entry)

    def inside(self, code: MachineCode, embedded: EmbeddedPtx) -> PtxKernel:
        """The same in a file of machine code: its cubin says how many registers a thread has, if
        the launch does not; raises like `MachineCode.images`."""
        launch = self.launch
        about = "; ".join(filter(None, (launch.about, embedded.about)))
        registers = launch.registers
        if registers is None:
            registers = code.registers(launch.entry, embedded)
        launch = replace(launch, registers=registers, about=about)
        return replace(self, launch=launch, embedded=embedded)

    @patient()
    def mir(self) -> Mir:
        """The program in machine form.

        Raises:
            TargetError: the file cannot be read, or has no such entry.
            PtxError: the text is no PTX; `Unsupported`: an instruction is not modelled.
            LaunchError: the launch contradicts the kernel.
        """
        from tilesim.ptx.program import lower

        return self._lowered(self.module(), lower)

    @patient()
    def plain(self) -> Mir:
        """The plain form, which the proof kernel rechecks (`tilesim.ptx.plain`); raises like
        `mir`."""
        from tilesim.ptx.plain import plain

        return self._lowered(self.module(), plain)

    def read_again(self, text: str) -> Mir:
        """The same of another text of the file; raises like `mir`."""
        from tilesim.ptx.parser import read
        from tilesim.ptx.program import lower

        return self._lowered(read(text, self.file), lower)

    def passing(self, values: Mapping[str, str]) -> PtxKernel:
        """The kernel with other numbers passed by value: by name (as the launch description or the
        PTX has it) or number of the parameter, unparsed.

        Raises:
            UsageError: there is no such parameter, or it is no number.
            LaunchError: a number does not fit its type.
            TargetError: the PTX cannot be read, which is done for its names.
        """
        params = list(self.launch.params)
        for name, text in self.named(values).items():
            number = self._numbered(name)
            params[number] = _with_value(params[number], f"{self.place}: {name}", text)
        return replace(self, launch=replace(self.launch, params=tuple(params)))

    def named(self, values: Mapping[str, str]) -> dict[str, str]:
        """What is given by names or numbers, by the names that the launch has; raises like
        `passing`."""
        numbers = {self._numbered(name): text for name, text in values.items()}
        return {self.launch.params[n].name or str(n): text for n, text in numbers.items()}

    def _numbered(self, name: str) -> int:
        params = self.launch.params
        known = [param.name for param in params]
        if name in known:
            return known.index(name)
        if name.isdecimal() and int(name) < len(params):
            return int(name)
        formal = [p.name for e in self.module().entries if e.name == self.launch.entry
                  for p in e.params]  # fmt: skip
        if name in formal[: len(params)]:
            return formal.index(name)
        scalars = [p.name or str(n) for n, p in enumerate(params) if isinstance(p, Scalar)]
        takes = f"the numbers {', '.join(scalars)}" if scalars else "no numbers"
        raise UsageError(
            f"{self.place}: kernel {readable(self.launch.entry)} has no parameter {name}"
            f"{did_you_mean(name, scalars)}; it takes {takes}"
        )

    def _lowered(self, found: Module, lowering: Callable[[Module, Function, Launch], Mir]) -> Mir:
        entries = {entry.name: entry for entry in found.entries}
        wanted = self.launch.entry
        if wanted not in entries:
            raise TargetError(
                f"{self.place} has no entry {wanted}{did_you_mean(wanted, entries)}; it has "
                f"{', '.join(entries) or 'none'}"
            )
        try:
            return lowering(found, entries[wanted], self.launch)
        except LaunchError as error:
            raise LaunchError(f"{self.source}: {error}") from error


def _with_value(actual: Parameter, what: str, text: str) -> Scalar:
    """A parameter with another value; ``what`` it is, for errors."""
    if not isinstance(actual, Scalar):
        kind = type(actual).__name__.lower()
        raise UsageError(f"{what} is a {kind}, no number; it is in the launch description")
    kind = actual.type
    try:
        value = float(text) if kind in FLOATS else int(text, 0)
    except ValueError:
        sort = "a number" if kind in FLOATS else "an integer"
        raise UsageError(f"{what} takes {sort} of type {kind}, not {text!r}") from None
    require_fits(what, kind, value)
    return replace(actual, value=value)


@dataclass(frozen=True)
class Scalars:
    """The programs of a PTX kernel for other values of integers that it takes by value."""

    kernel: PtxKernel
    #: no lines of Python ask for these values
    written_in_python: ClassVar[bool] = False

    @cached_property
    def _places(self) -> dict[str, int]:
        """By name their numbers: as the launch description calls them, else as the PTX does."""
        launch, places = self.kernel.launch, dict[str, int]()
        formal = [p.name for e in self.kernel.module().entries if e.name == launch.entry
                  for p in e.params]  # fmt: skip
        for number, (name, actual) in enumerate(zip(formal, launch.params, strict=False)):
            if isinstance(actual, Scalar) and actual.type[0] in "bus" and actual.value is not None:
                places[actual.name or name] = number
        return places

    @cached_property
    def params(self) -> dict[str, Any]:
        """Their values in the launch description, by name; raises like `PtxKernel.mir`."""
        given = self.kernel.launch.params
        return {n: p.value for n, at in self._places.items() if isinstance(p := given[at], Scalar)}

    def __call__(self, **values: Any) -> Mir:
        """The program with these values.

        Raises:
            LaunchError: one does not fit its type; else as `PtxKernel.mir`.
        """
        params = list(self.kernel.launch.params)
        for name, value in values.items():
            place = self._places[name]
            actual = params[place]
            assert isinstance(actual, Scalar)
            width = WIDTH[actual.type] - (actual.type[0] == "s")
            if value < 0 or value >= 1 << width:
                raise LaunchError(f"{name} = {value} does not fit {actual.type}")
            params[place] = replace(actual, value=value)
        launch = replace(self.kernel.launch, params=tuple(params))
        return replace(self.kernel, launch=launch).mir()


def module(place: str) -> Module:
    """What a PTX file says; that of the last file is kept, for its other kernels.

    Raises:
        TargetError: it cannot be read.
        PtxError: it is no PTX.
    """
    path = Path(place)
    try:
        about = path.stat()
    except OSError as error:
        raise TargetError(f"{place} cannot be read: {error.strerror}") from error
    return _module(place, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=1)
def _module(place: str, _changed: int, _size: int) -> Module:
    from tilesim.ptx.parser import read

    return read(read_file(Path(place)), place)


def described(
    path: Path, given: tuple[Path, ...], entry: str | None, number: str | None
) -> list[tuple[str, PtxKernel]]:
    """The kernels of a PTX file, one per launch that is described, each with its name.

    ``given``: files with descriptions, else the one beside the file; ``entry``: only launches of
    this one, whose name may be as it is shown; ``number``: only this of its launches, counted from
    1. A name ends with the number if there are several.

    Raises:
        TargetError: a description cannot be read, or there is none of what is asked for.
        LaunchError: one is malformed.
    """
    sources = given or (path.with_suffix(DESCRIPTION),)
    if not given and not sources[0].exists():
        raise TargetError(
            f"{path} does not describe its launch: give --launch FILE, or write {sources[0]}; "
            f"`tilesim launch-template {path}` writes what is to be filled in"
        )
    texts = ((read_file(source), str(source)) for source in sources)
    launches = [(launch, source) for text, source in texts for launch in loads_all(text, source)]
    every = list(_named(path, launches))
    found = [(label, kernel) for label, kernel, at in every
             if entry in (None, kernel.launch.entry, readable(kernel.launch.entry))
             and number in (None, str(at))]  # fmt: skip
    if not found:
        wanted = f"{entry}{'' if number is None else f'[launch={number}]'}"
        has = ", ".join(label.partition("::")[2] for label, _, _ in every)
        raise TargetError(
            f"{', '.join(map(str, sources))}: no launch of {wanted} is described"
            f"{did_you_mean(entry or '', [launch.entry for launch, _ in launches])}; there is "
            f"{has or 'none'}"
        )
    return found


def _named(path: Path, launches: list[tuple[Launch, str]]) -> Iterator[tuple[str, PtxKernel, int]]:
    """Each launch with its name and its number among those of its entry."""
    several = Counter(launch.entry for launch, _ in launches)
    names = shown(several)
    seen: Counter[str] = Counter()
    for launch, source in launches:
        entry = launch.entry
        seen[entry] += 1
        label = f"{path}::{names[entry]}"
        if several[entry] > 1:
            label += f"[launch={seen[entry]}]"
        yield label, PtxKernel(str(path), launch, source), seen[entry]
