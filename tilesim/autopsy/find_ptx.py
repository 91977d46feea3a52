"""Where the PTX of a kernel in a dump is, and whether it is that of the machine code there.

It is looked for in what the user names (PTX, a cubin, a program, a folder of these), in the dump
itself (a cubin compiled with ``-lineinfo`` embeds its whole PTX) and in Triton's cache. It is
*certain* that a text belongs to the machine code if the dump embeds it, but for comments and
positions in the source, or if a cubin that lies beside it has the same code. A text that only has
the kernel's name is *not verified*; one whose parameters differ is another kernel's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from tilesim.autopsy.core_dump import CoreDump, Grid
from tilesim.autopsy.errors import DumpError
from tilesim.cubin import fatbin
from tilesim.cubin.errors import CubinError
from tilesim.cubin.image import Image, KernelInfo
from tilesim.files import read_regular
from tilesim.ptx.demangle import readable
from tilesim.ptx.inline import flatten
from tilesim.ptx.parser import read
from tilesim.ptx.syntax import Function, Module, PtxError
from tilesim.records import dataclass, field, replace
from tilesim.wording import count

#: bytes of a file with PTX or with a cubin, and of a program, at most
MOST_TEXT, MOST_PROGRAM = 64 << 20, 1 << 30
#: files of a folder, and folders of Triton's cache, that are looked at
MOST_FILES = 1 << 14
#: bytes at the beginning of shared memory that are the system's, from sm_90 on
RESERVED = 1024
#: variables in shared memory are aligned by at most so many bytes
_ALIGNED = 1024
#: of a text that was compiled to something else, with other constants or by another ptxas
OTHER_CODE = "by its name only: the cubin beside it has other machine code than the dump"
_ELF = b"\x7fELF"
_EM_CUDA = 190
#: what ptxas leaves out of the text that it embeds: comments, positions, sections for debuggers
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_POSITIONS = re.compile(
    r"^[ \t]*\.(?:loc|file)\b[^\n]*$|^[ \t]*\.section[ \t]+\.debug_\w+\s*\{.*?^[ \t]*\}",
    re.M | re.S,
)


@dataclass(frozen=True)
class Missing:
    """What is not to be had, and why; what can be done about it, if anything."""

    why: str


@dataclass(frozen=True)
class FoundPtx:
    """The PTX of a kernel.

    ``file`` is what reports call it, ``source`` says in words where it is from. ``certain``: it is
    the text of the machine code in the dump, as ``evidence`` says; ``differs`` are facts that speak
    against it. ``entry`` is the kernel in its ``module``.
    """

    text: str = field(repr=False)
    file: str
    source: str
    certain: bool
    evidence: str
    differs: tuple[str, ...]
    module: Module = field(repr=False)
    entry: Function = field(repr=False)


@dataclass(frozen=True)
class Loaded:
    """The kernel of a launch as the dump has it: its image, what ptxas has written down of it, and
    the image before relocation (None if it is not in the dump)."""

    image: Image
    info: KernelInfo
    unrelocated: Image | None = None

    @property
    def name(self) -> str:
        """Its name, as the linker knows it."""
        return self.info.name

    @property
    def code(self) -> tuple[bytes, ...]:
        """Its machine code, before and after relocation."""
        every = [one for one in (self.unrelocated, self.image) if one is not None]
        return tuple(filter(None, (_code(one, self.name) for one in every)))


def loaded(dump: CoreDump, grid: Grid, image: Image, info: KernelInfo) -> Loaded:
    """The kernel of a launch, of which ``image`` is the relocated cubin."""
    before = dump.image_of(grid, relocated=False)
    return Loaded(image, info, None if before is None else Image(before.data, image.name))


@dataclass(frozen=True)
class _Candidate:
    """A text that may be it, ``beside``: cubins that were made with it."""

    text: str
    file: str
    source: str
    beside: Callable[[], Iterator[bytes]] = lambda: iter(())


def find_ptx(
    kernel: Loaded, given: Path | None = None, environment: Mapping[str, str] = os.environ
) -> FoundPtx | Missing:
    """The PTX of a kernel: from what is ``given``, else from the dump, else from Triton's cache.

    Raises:
        DumpError: what is given cannot be read, or has no PTX at all.
    """
    if given is not None:
        every = [*_given(given, kernel.name, environment)]
        if not every:
            raise DumpError(f"{given}: there is no PTX in it of the kernel {readable(kernel.name)}")
        return _chosen(kernel, every)
    embedded = kernel.image.ptx
    if embedded:
        source = "embedded in the dump"
        return _chosen(kernel, [_Candidate(embedded, f"{_stem(kernel.name)}.ptx", source)])
    cache = environment.get("TRITON_CACHE_DIR") or _home(environment, ".triton/cache")
    if cache:
        every = [*_of_folder(Path(cache), kernel.name, environment, "Triton's cache")]
        if every:
            return _chosen(kernel, every)
    return Missing(
        f"the dump has no PTX of {readable(kernel.name)}, as it was compiled without -lineinfo: "
        "give it with --ptx (the PTX, the program, or a folder of `tilesim capture`)"
    )


def _home(environment: Mapping[str, str], below: str) -> str:
    home = environment.get("HOME")
    return os.path.join(home, below) if home else ""


def _stem(name: str) -> str:
    return re.sub(r"\W+", "_", readable(name).partition("<")[0].rpartition("::")[2]) or "kernel"


# ---------------------------------------------------------------------- which one it is


def _chosen(kernel: Loaded, every: list[_Candidate]) -> FoundPtx | Missing:
    """The first that is certain, else the first that may be it, the newest first."""
    found: list[FoundPtx] = []
    wrong: list[str] = []
    texts: set[str] = set()
    for one in every:
        if one.text in texts:
            continue
        texts.add(one.text)
        judged = _judged(kernel, one)
        if isinstance(judged, Missing):
            wrong.append(judged.why)
        elif judged.certain:
            return judged
        else:
            found.append(judged)
    if not found:
        return Missing("; ".join(wrong[:3]))
    first = min(found, key=_against)
    if len(found) == 1:
        return first
    alike = sum(_against(one) == _against(first) for one in found)
    which = "the newest" if alike == len(found) else "the newest that fits best"
    several = f"{count(len(found), 'text')} there have a kernel of this name, {which} is taken"
    return replace(first, evidence=f"{first.evidence}; {several}")


def _against(one: FoundPtx) -> tuple[bool, int]:
    """How much speaks against a text that is not certain."""
    return one.evidence == OTHER_CODE, len(one.differs)


def _judged(kernel: Loaded, one: _Candidate) -> FoundPtx | Missing:
    try:
        module = read(one.text, one.file)
        entry = next((e for e in module.entries if e.name == kernel.name), None)
        if entry is None:
            return Missing(f"{one.file} has no kernel {readable(kernel.name)}")
        differs = (*_differences(kernel, module, entry),)
    except PtxError as error:
        return Missing(str(error))
    certain, evidence = _evidence(kernel, one)
    if not certain and _parameters_differ(kernel.info, entry):
        return Missing(
            f"{one.file} is of another kernel {readable(kernel.name)} than the one in the dump: "
            f"{_parameters_say(kernel.info, entry)}"
        )
    embedded = kernel.image.ptx
    if certain and embedded and _lines(one.text) != _lines(embedded):
        # the tables of the cubin name lines of the text that it embeds
        own = _Candidate(embedded, f"{_stem(kernel.name)}.ptx", "embedded in the dump")
        return _judged(kernel, own)
    return FoundPtx(one.text, one.file, one.source, certain, evidence, differs, module, entry)


def _lines(text: str) -> list[int]:
    """The lines on which instructions stand."""
    kept = _POSITIONS.sub(_blank, _COMMENT.sub(_blank, text)).split("\n")
    return [number for number, line in enumerate(kept) if line.rstrip().endswith(";")]


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def _evidence(kernel: Loaded, one: _Candidate) -> tuple[bool, str]:
    """Whether a text is certainly that of the machine code, and why."""
    embedded = kernel.image.ptx
    if embedded is not None:
        if embedded == one.text:
            return True, "the cubin in the dump embeds it"
        if plain(embedded) == plain(one.text):
            return True, "the cubin in the dump embeds the same text"
        return False, "the cubin in the dump embeds another text"
    own, other = kernel.code, False
    for data in one.beside():
        try:
            code = _code(Image(data), kernel.name)
        except CubinError:
            continue
        if code in own:
            return True, "the cubin beside it has the machine code of the dump"
        other |= code is not None
    if other:
        return False, OTHER_CODE
    return False, "by its name, not verified: the dump has nothing to compare it with"


def plain(text: str) -> str:
    """PTX without what ptxas does not embed: comments, positions in the source, blanks."""
    return " ".join(_POSITIONS.sub("", _COMMENT.sub("", text)).split())


def _code(image: Image, name: str) -> bytes | None:
    section = image.section(f".text.{name}")
    return None if section is None else image.contents(section)


# ---------------------------------------------------------------------- what speaks against it


def _parameters_differ(info: KernelInfo, entry: Function) -> bool:
    return [p.size for p in info.parameters] != [p.size for p in entry.params]


def _parameters_say(info: KernelInfo, entry: Function) -> str:
    own = ", ".join(str(p.size) for p in info.parameters) or "none"
    there = ", ".join(str(p.size) for p in entry.params) or "none"
    return f"its parameters have {there} bytes, those in the dump {own}"


def _differences(kernel: Loaded, module: Module, entry: Function) -> Iterator[str]:
    """Where a text contradicts the cubin.

    Raises:
        PtxError: the kernel is not understood.
    """
    info, says = kernel.info, entry.directives
    if module.target != kernel.image.arch:
        yield f"its .target is {module.target}, the machine code is for {kernel.image.arch}"
    if _parameters_differ(info, entry):
        yield _parameters_say(info, entry)
    for directive, have in (("reqntid", info.block), ("maxntid", info.most_threads)):
        want = says.get(directive)
        if directive == "maxntid" and "reqntid" in says:
            continue
        if want is not None and have is not None and (*want, 1, 1)[:3] != have:
            yield f".{directive} is {list(want)}, in the dump {list(have)}"
    shared = flatten(module, entry).shared_size
    own_shared = max(0, info.shared - reserved(kernel.image.arch))
    # the simulator ends static memory where dynamic memory may begin, which ptxas does not
    if info.shared and not 0 <= shared - own_shared < _ALIGNED:
        yield f"its variables take {shared} bytes of shared memory, in the dump {own_shared}"


def reserved(arch: str) -> int:
    """Bytes at the beginning of a CTA's shared memory that are the system's; ``arch``: sm_90a."""
    return RESERVED if int(re.sub(r"\D", "", arch) or 0) >= 90 else 0


# ---------------------------------------------------------------------- what the user names


def _given(path: Path, name: str, environment: Mapping[str, str]) -> Iterator[_Candidate]:
    """The texts in what a path names that have an entry of this name."""
    if path.is_dir():
        yield from _of_folder(path, name, environment, str(path))
        return
    data = _bytes(path, MOST_PROGRAM)
    found = 0
    for text, source in _texts(data, str(path)):
        found += 1
        if _has(text, name):
            yield _Candidate(text, str(path), source, partial(_cubins_of, path, data))
    if not found:
        raise DumpError(
            f"{path}: there is no PTX in it: compile with {fatbin.architecture()}, or with "
            "-lineinfo, which the dump then embeds"
        )


def _bytes(path: Path, most: int) -> bytes:
    try:
        return read_regular(path, most)
    except OSError as error:
        raise DumpError(f"{path}: it cannot be read: {error.strerror}") from error


def _texts(data: bytes, place: str) -> Iterator[tuple[str, str]]:
    """The PTX in a file, each with where it is, in words."""
    try:
        if data.startswith(_ELF):
            if int.from_bytes(data[18:20], "little") == _EM_CUDA:
                text = Image(data, place).ptx
                if text:
                    yield text, f"embedded in the cubin {place}"
                return
            for text in fatbin.texts_of_program(data):
                yield text, f"in the program {place}"
            return
        for text in fatbin.texts(data):
            if ".version" in text:
                yield text, place
    except (fatbin.FatbinError, CubinError) as error:
        raise DumpError(f"{place}: {error}") from error


def _cubins_of(path: Path, data: bytes) -> Iterator[bytes]:
    """The cubins in a program; the one that lies beside a text."""
    if not data.startswith(_ELF):
        yield from _beside(path.with_suffix(".cubin"))
    elif int.from_bytes(data[18:20], "little") != _EM_CUDA:
        try:
            yield from fatbin.cubins_of_program(data)
        except fatbin.FatbinError as error:
            raise DumpError(f"{path}: {error}") from error


def _has(text: str, name: str) -> bool:
    return re.search(rf"\.entry\s+{re.escape(name)}\s*[(\s{{]", text) is not None


def _of_folder(
    path: Path, name: str, environment: Mapping[str, str], source: str
) -> Iterator[_Candidate]:
    """PTX files of a folder and of the folders in it, as Triton's cache has them, the newest first;
    a cubin with the same stem lies beside one."""
    files: list[tuple[int, Path]] = []
    for number, file in enumerate(_ptx_below(path)):
        if number >= MOST_FILES:
            break
        try:
            files.append((-file.stat().st_mtime_ns, file))
        except OSError:
            continue
    # in Triton's cache a file has the name of its kernel: then no other needs to be read
    named = [one for one in files if one[1].stem == name]
    for _, file in sorted(named) + sorted(one for one in files if one not in named):
        try:
            text = read_regular(file, MOST_TEXT).decode(errors="replace")
        except OSError:
            continue
        if _has(text, name):
            beside = partial(_beside, file.with_suffix(".cubin"))
            yield _Candidate(text, str(file), f"in {source}", beside)


def _ptx_below(path: Path) -> Iterator[Path]:
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.endswith(".ptx") and entry.is_file():
                    yield Path(entry.path)
                elif entry.is_dir():
                    yield from Path(entry.path).glob("*.ptx")
    except OSError:
        return


def _beside(file: Path) -> Iterator[bytes]:
    try:
        yield read_regular(file, MOST_TEXT)
    except OSError:
        return
