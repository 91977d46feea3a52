"""``tilesim check --sass``: the machine code of a kernel that is checked, against its PTX."""

from __future__ import annotations

import re
from pathlib import Path

from tilesim.autopsy.find_ptx import plain
from tilesim.checker import INTERRUPTED, Report
from tilesim.cubin.errors import CubinError
from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.ptxas import at, compiled
from tilesim.errors import TilesimError
from tilesim.files import read_regular
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.limits import Timer
from tilesim.loader import Target
from tilesim.loader.machine_code import read, symbol_of
from tilesim.loader.ptx import PtxKernel
from tilesim.records import dataclass, replace
from tilesim.report.machine_code import Form, MachineCode, Place, combined, kind_of
from tilesim.translation import validate

#: how PTX synchronises: a comparison of none of these instructions says nothing
_SYNCHRONISES = re.compile(
    r"\b(mbarrier|barrier|bar|fence|membar|wgmma|tcgen05|cp\.async|griddepcontrol)\."
)
#: bytes of a cubin that lies beside a PTX file, at most
MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class Sass:
    """How machine code is found: which ``ptxas`` compiles PTX of which there is none, None: the one
    that is installed."""

    ptxas: str | None = None

    @classmethod
    def by(cls, ptxas: Path | None) -> Sass:
        """By the ptxas at a path, or in the toolkit at a path.

        Raises:
            CubinError: there is none.
        """
        return cls(None if ptxas is None else at(ptxas).path)

    def of(
        self, target: Target, program: Program | Mir, report: Report, timer: Timer
    ) -> tuple[Report, MachineCode | None]:
        """The report on a kernel with what its machine code says; None: there is nothing to
        compare, as of a kernel that is not supported. The ``timer`` is that of the whole check."""
        if report.verdict == "unsupported":
            return report, None
        form: Form = "program" if target.ptx is None else "PTX"
        why = ""
        try:
            with timer.interrupting():
                found = self._found(target, program)
                validation = validate(found.image, found.symbol, found.ptx)
            if not validation.instructions and _SYNCHRONISES.search(found.ptx):
                raise _Missing("none of its synchronising instructions is known")
        except TilesimError as error:  # the verdict on the kernel is worth having without it
            why = " ".join(str(error).split())
        except KeyboardInterrupt:
            why = timer.reason()
            if not why:
                why = INTERRUPTED
                report = replace(report, reasons=(INTERRUPTED, *report.reasons))
        if why:
            missing = MachineCode("none", report.verdict, form, "", missing=why)
            return combined(report, missing, _nowhere), missing
        code = MachineCode(kind_of(validation), report.verdict, form, found.source, validation)
        return combined(report, code, found.place), code

    def _found(self, target: Target, program: Program | Mir) -> _Found:
        if target.ptx is not None:
            assert isinstance(program, Mir)
            return self._of_ptx(target.ptx, _places(program, target.ptx.file))
        if isinstance(program, Program):
            return _emitted(program)
        raise _Missing("a program of the machine has none")

    def _of_ptx(self, kernel: PtxKernel, place: Place) -> _Found:
        """The cubin that embeds the PTX, or lies beside it; what ptxas makes of it if there is
        none, or it is the same code: what another compilation would make is not what runs."""
        text, name = kernel.text(), kernel.launch.entry
        others: list[tuple[Image, Symbol, str]] = []
        for image, source in _at_hand(kernel):
            symbol = symbol_of(image, name)
            if symbol is not None and image.ptx is not None and plain(image.ptx) == plain(text):
                return _Found(image, symbol, image.ptx, source, place)
            if symbol is not None:
                others.append((image, symbol, source))
        why = "; ".join(
            f"{source} {'has no lines' if image.ptx is None else 'is of other PTX'}"
            for image, _, source in others
        )
        try:
            image, ptxas = compiled(text, kernel.file, kernel.target, _limit(kernel), self.ptxas)
        except CubinError as error:
            raise _Missing(f"{why}; {error}" if why else str(error)) from error
        symbol = symbol_of(image, name)
        if symbol is None:
            raise _Missing(f"{kernel.file}: ptxas has made no code of {name}")
        code = _bytes(image, symbol)
        same = next((said for one, at, said in others if _bytes(one, at) == code), "")
        if others and not same:
            raise _Missing(f"{why}, and is not what {ptxas} makes of this one")
        source = f"what {ptxas} makes of it"
        if same:
            source = f"{same}, which is {source}, byte for byte,"
        return _Found(image, symbol, image.ptx or text, source, place)


def _bytes(image: Image, symbol: Symbol) -> bytes:
    """The machine code of a kernel."""
    return image.contents(image.sections[symbol.section])


class _Missing(TilesimError):
    """There is no machine code to compare; the message says why."""


@dataclass(frozen=True)
class _Found:
    """Machine code with the PTX that its line table is about. ``source`` says in words which it is,
    ``place`` where a line of the PTX is."""

    image: Image
    symbol: Symbol
    ptx: str
    source: str
    place: Place


def _nowhere(line: int) -> Loc:
    return Loc("", line)


def _at_hand(kernel: PtxKernel) -> list[tuple[Image, str]]:
    """The cubins that come with a PTX text, each with what reports call it."""
    path = Path(kernel.place)
    if kernel.embedded is not None:
        if kernel.embedded.image is not None:
            return [(kernel.embedded.image, f"the code of {path}")]
        # code for sm_90a may be made of PTX for sm_90: it is told by the PTX in it
        family = kernel.embedded.arch.rstrip("af")
        images = [one for one in read(path).images if one.arch.rstrip("af") == family]
        return [(one, f"the code of {path}") for one in images]
    beside = path.with_suffix(".cubin")
    if not beside.is_file():
        return []
    try:
        image = Image(read_regular(beside, MOST_BYTES), str(beside))
    except OSError as error:
        raise CubinError(f"{beside} cannot be read: {error.strerror}") from error
    other = f" for {image.arch}" if image.arch != kernel.target else ""
    return [(image, f"the code of {beside}{other}")]


def _limit(kernel: PtxKernel) -> int | None:
    """The most registers of a thread that the launch says."""
    says = next(
        (e.directives for e in kernel.module().entries if e.name == kernel.launch.entry), {}
    )
    return None if "maxnreg" in says or kernel.embedded is not None else kernel.launch.registers


def _places(program: Mir, file: str) -> Place:
    """Where lines of a PTX text are: in the source, if an instruction of them has a position."""
    known = {i.loc.innermost.line: i.loc for i in program.code if i.loc.innermost.file == file}
    return lambda line: known.get(line, Loc(file, line))


def _emitted(program: Program) -> _Found:
    """What NVRTC makes of the CUDA C++ that is emitted for a program."""
    from tilesim.gpu.compile import compile_cubin, versions  # an extra
    from tilesim.gpu.emit import emit

    source = emit(program)
    made = compile_cubin(source)
    version = versions()["nvrtc"]
    image = Image(made.cubin, f"{program.name}, compiled by NVRTC {version}")
    symbol, ptx = symbol_of(image, source.entry), image.ptx
    if symbol is None or ptx is None:
        raise _Missing(f"NVRTC {version} has embedded no PTX")

    def place(line: int) -> Loc:
        found = lines.get(line)
        loc = None if found is None else source.loc(found)
        return Loc(program.name, 0) if loc is None else loc

    lines = _source_lines(image, symbol)
    said = f"the CUDA C++ that tilesim emits (NVRTC {version})"
    return _Found(image, symbol, ptx, said, place)


def _source_lines(image: Image, symbol: Symbol) -> dict[int, int]:
    """By line of the PTX, the line of the emitted source that its machine code comes from."""
    from tilesim.cubin.disassembly import disassemble

    (code,) = disassemble(image, (symbol,))
    found: dict[int, int] = {}
    for _, one in sorted(code.code.items()):
        if one.ptx is not None and one.lines:
            found.setdefault(one.ptx, one.lines[-1].line)
    return found
