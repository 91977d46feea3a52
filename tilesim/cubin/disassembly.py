"""The instructions of a cubin and its control flow, by nvdisasm.

nvdisasm is found in NVIDIA's wheel ``nvidia-cuda-nvdisasm``, on the PATH, or in a CUDA toolkit. It
is a process for each cubin, bounded in time and in what it may print; what it has printed is kept.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from threading import Timer
from typing import NamedTuple

from tilesim.cubin.errors import CubinError
from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.line_table import LineTable
from tilesim.cubin.sass import WIDTH, Function, Instruction, SourceLine
from tilesim.records import replace

#: seconds that nvdisasm may take, and bytes that it may print
MOST_SECONDS = 20
MOST_PRINTED = 32 << 20
#: bytes of a function that it is given, and of its messages that are read
MOST_CODE = 2 << 20
_MOST_SAID = 1 << 16
#: instructions between a wait and the branch to its loop, at most
_NEAR = 6

_SECTION = re.compile(r"//-{5,} +(\S+) +-{5,}$")
_LABEL = re.compile(r"\s*([.$\w]\S*):\s*$")
_INSTRUCTION = re.compile(
    r"\s*/\*([0-9a-f]+)\*/\s+(?:@(!?U?P[T\d]+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*(?:\(\*.*\*\))?;"
)
#: ``BRX R2 -0x150``, ``RET R2 `(kernel)``
_NO_COMMA = re.compile(r"(?<=\w) (?=`\(|-0x)")
_NAMED = re.compile(r"`\((.*)\)$")


@cache
def nvdisasm() -> str:
    """The path of nvdisasm.

    Raises:
        CubinError: there is none.
    """
    name = "nvdisasm.exe" if sys.platform == "win32" else "nvdisasm"
    wheels = Path(sysconfig.get_path("platlib")) / "nvidia"
    homes = [Path(home) for key in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(key))]
    on_path = shutil.which(name)
    for path in (
        *sorted(wheels.glob(f"*/bin/{name}"), reverse=True),
        *([Path(on_path)] if on_path else []),
        *(home / "bin" / name for home in homes),
    ):
        if os.access(path, os.X_OK):
            return str(path)
    raise CubinError(
        "nvdisasm, which reads machine code, is not here: install `tilesim[autopsy]`, or a CUDA "
        "toolkit and set CUDA_HOME to it"
    )


def function_at(image: Image, address: int) -> Function | None:
    """The function that an address lies in, on the device if the image is relocated.

    Raises:
        CubinError: as `disassemble`.
    """
    symbol = image.symbol_at(address)
    return None if symbol is None else disassemble(image, (symbol,))[0]


class _Row(NamedTuple):
    """An instruction as it is printed; labels are names still."""

    address: int
    guard: str
    opcode: str
    operands: tuple[str, ...]


@lru_cache(maxsize=64)
def disassemble(image: Image, symbols: tuple[Symbol, ...]) -> tuple[Function, ...]:
    """Functions of a cubin, by one process.

    Raises:
        CubinError: the cubin is damaged, or nvdisasm cannot be run on it.
    """
    for one in symbols:
        if one.size > MOST_CODE:
            raise CubinError(
                f"{image.name}: {one.name[:64]} has {one.size >> 20} MiB of code; functions of at "
                f"most {MOST_CODE >> 20} MiB are read"
            )
    listings = _listings(_printed(image, symbols))
    table = LineTable(image)
    return tuple(
        _function(image, one, table, *listings.get(image.sections[one.section].name, ([], {})))
        for one in symbols
    )


def _function(
    image: Image, symbol: Symbol, table: LineTable, rows: list[_Row], labels: Mapping[str, int]
) -> Function:
    start, end = symbol.address, symbol.address + symbol.size
    section = image.sections[symbol.section].address
    inside = {name: at - start for name, at in labels.items() if start <= at <= end}
    code: dict[int, Instruction] = {}
    for row in rows:
        if not start <= row.address < end:
            continue
        target = None
        operands = []
        for operand in row.operands:
            named = _NAMED.match(operand)
            if named and named[1] in inside:
                # ``RET R2 `(kernel)`` names what the register counts from, no place it goes to
                target = inside[named[1]] if not row.opcode.startswith("RET") else None
                operands.append(f"{inside[named[1]]:#x}")
            else:
                operands.append(named[1] if named else operand)
        pc = row.address - start
        code[pc] = Instruction(
            pc,
            row.guard,
            row.opcode,
            tuple(operands),
            table.lines(symbol.section, row.address - section),
            table.ptx(symbol.section, row.address - section),
            target,
        )
    if not code:
        raise image.error(f"nvdisasm finds no instruction of {symbol.name}")
    successors, unknown = _flow(image, symbol, code)
    begins = {
        pc: at - (start - section)
        for pc in code
        if (at := table.begins(symbol.section, start + pc - section)) is not None
    }
    code = _own_lines(code, successors, begins, _parts(image.ptx or ""))
    before: dict[int, list[int]] = {pc: [] for pc in code}
    for pc, following in successors.items():
        for other in following:
            before[other].append(pc)
    predecessors = {pc: tuple(places) for pc, places in before.items()}
    return Function(
        symbol.name, start, symbol.size, code, successors, predecessors, frozenset(unknown)
    )


def _parts(ptx: str) -> list[int]:
    """Of each line of an embedded PTX, the part that it lies in, from line 0 on: parts end at empty
    lines. What has no empty line between it is of one position in the source, as ptxas leaves an
    empty line for each ``.loc``."""
    found = [0]
    for line in ptx.splitlines():
        found.append(found[-1] + (not line.strip()))
    return found


def _own_lines(
    code: Mapping[int, Instruction],
    successors: Mapping[int, tuple[int, ...]],
    begins: Mapping[int, int],
    parts: Sequence[int],
) -> dict[int, Instruction]:
    """Instructions with lines of their own; ``begins``: from where on the lines of each hold,
    ``parts`` as `_parts` says.

    ptxas writes no row for code that it puts behind the others (the loop of a ``try_wait``): it
    would have the line of what lies before it, which does not go on there. Such code has the lines
    of the other instructions of its line of the PTX, or of its part of the PTX, if they agree; or
    of the same mbarrier instruction from which a branch leads to it; else none.
    """
    apart = 0  # the last place that is not come to from the one before it
    carried: dict[int, int] = {}
    of_line: dict[int, set[tuple[SourceLine, ...]]] = {}
    of_part: dict[int, set[tuple[SourceLine, ...]]] = {}
    for pc, one in code.items():
        before = code.get(pc - WIDTH)
        if before and before.base != "CALL" and pc not in successors[before.pc]:
            apart = pc
        if begins.get(pc, pc) < apart:
            carried[pc] = apart
        elif one.ptx is not None:
            of_line.setdefault(one.ptx, set()).add(one.lines)
            if one.ptx < len(parts):
                of_part.setdefault(parts[one.ptx], set()).add(one.lines)
    found = dict(code)
    for pc, block in carried.items():
        one = code[pc]
        part = parts[one.ptx] if one.ptx is not None and one.ptx < len(parts) else -1
        others = of_line.get(-1 if one.ptx is None else one.ptx) or of_part.get(part) or set()
        if not others and one.base == "SYNCS":
            others = {
                code[at].lines
                for at in code.keys() - carried.keys()
                if (code[at].opcode, code[at].operands) == (one.opcode, one.operands)
                and any(
                    after in code and code[after].target == block
                    for after in range(at + WIDTH, at + _NEAR * WIDTH, WIDTH)
                )
            }
            if part >= 0:
                of_part[part] = others  # and of the branch back
        found[pc] = replace(one, lines=next(iter(others)) if len(others) == 1 else ())
    for pc, one in code.items():
        if one.base == "SYNCS" and "PHASECHK" in one.modifiers:
            _as_in_its_loop(found, pc, one)
    return found


def _as_in_its_loop(found: dict[int, Instruction], pc: int, one: Instruction) -> None:
    """Gives the first try of a wait, and the branch to its loop, the lines of that: ptxas says that
    they come from a line before the wait."""
    for after in range(pc + WIDTH, pc + _NEAR * WIDTH, WIDTH):
        branch = found.get(after)
        if branch is None or branch.target is None:
            continue
        loop = range(branch.target, branch.target + _NEAR * WIDTH, WIDTH)
        tries = (found[at] for at in loop if at in found and at > after)
        same = next((o for o in tries if (o.opcode, o.operands) == (one.opcode, one.operands)), one)
        if same is not one and same.lines:
            for place in (pc, after):
                found[place] = replace(found[place], lines=same.lines)
        return


def _printed(image: Image, symbols: tuple[Symbol, ...]) -> str:
    """What nvdisasm prints of functions."""
    late: list[bool] = []
    with tempfile.TemporaryDirectory() as folder:
        path, errors = Path(folder) / "image.cubin", Path(folder) / "errors"
        path.write_bytes(image.data)
        numbers = ",".join(str(one.index) for one in symbols)
        command = [nvdisasm(), "-c", "-fun", numbers, str(path)]
        with (
            errors.open("wb") as stderr,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr) as process,
        ):

            def stop() -> None:
                late.append(True)
                process.kill()

            timer = Timer(MOST_SECONDS, stop)
            timer.start()
            try:
                assert process.stdout is not None
                data = process.stdout.read(MOST_PRINTED + 1)
                if len(data) > MOST_PRINTED:
                    process.kill()
                process.wait()
            except BaseException:  # an interrupt
                process.kill()
                raise
            finally:
                timer.cancel()
        with errors.open("rb") as file:
            said = file.read(_MOST_SAID).decode(errors="replace").replace(str(path), path.name)
    what = f"{image.name}: nvdisasm"
    if late:
        raise CubinError(f"{what} was stopped after {MOST_SECONDS} s")
    if len(data) > MOST_PRINTED:
        raise CubinError(f"{what} prints more than {MOST_PRINTED >> 20} MiB")
    if process.returncode:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        reasons = [line for line in lines if "fatal" in line or "error" in line]
        reason = [*reasons[-1:], *lines, f"it ended with status {process.returncode}"][0]
        raise CubinError(f"{what} cannot read it: {reason}")
    return data.decode("utf-8", "replace")


def _listings(text: str) -> dict[str, tuple[list[_Row], dict[str, int]]]:
    """By section: the instructions that are printed, and the address that each label stands for."""
    found: dict[str, tuple[list[_Row], dict[str, int]]] = {}
    rows: list[_Row] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []
    for line in text.splitlines():
        if one := _INSTRUCTION.match(line):
            address = int(one[1], 16)
            labels |= dict.fromkeys(waiting, address)
            waiting.clear()
            text = _NO_COMMA.sub(", ", one[4].replace(".reuse", ""))
            operands = tuple(_split(text))
            rows.append(_Row(address, one[2] or "", one[3], operands))
        elif one := _SECTION.match(line):
            rows, labels, waiting = [], {}, []
            found[one[1]] = rows, labels
        elif one := _LABEL.match(line):
            waiting.append(one[1])
    return found


def _split(text: str) -> Iterator[str]:
    """Operands: what stands between commas that are in no brackets."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        if sign in "[{(":
            depth += 1
        elif sign in "]})":
            depth -= 1
        elif sign == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    if last := text[start:].strip():
        yield last


#: what goes on at another place; all others go on at the next
_BRANCHES = frozenset({"BRA", "JMP"})
_INDIRECT = frozenset({"BRX", "BRXU", "JMX", "JMXU"})
_ENDS = frozenset({"EXIT", "KILL"})


def _flow(
    image: Image, symbol: Symbol, code: Mapping[int, Instruction]
) -> tuple[dict[int, tuple[int, ...]], set[int]]:
    """What can follow each place, and the branches of which that is not known."""
    # attributes count from the beginning of the section
    shift = symbol.address - image.sections[symbol.section].address
    table = image.info(symbol).branch_targets
    returns = _returns(image, symbol, code)
    meetings: dict[str, set[int]] = {}
    for one in code.values():
        if one.base == "BSSY" and one.target is not None:
            meetings.setdefault(one.operands[0], set()).add(one.target)
    found: dict[int, tuple[int, ...]] = {}
    unknown: set[int] = set()
    for pc, one in code.items():
        after: set[int] = set()
        always = not one.guard
        following = pc + WIDTH
        if one.base in _BRANCHES:
            always &= len(one.operands) == 1 and not {*one.modifiers} & {"ANY", "DIV", "CONV"}
            after |= {one.target} if one.target is not None else set()
            if one.target is None:
                unknown.add(pc)
        elif one.base in _INDIRECT:
            targets = table.get(pc + shift)
            after |= {place - shift for place in targets or ()}
            if targets is None:
                unknown.add(pc)
        elif one.base == "CALL":
            always &= one.target is not None
            after |= {one.target} if one.target is not None else set()
        elif one.base == "RET":
            after |= returns.get(pc, set())
        elif one.base == "BSYNC":  # goes on where its BSSY says, which is mostly the next place
            meeting = meetings.get(one.operands[0], set())
            always = False
            after |= meeting if following not in meeting else set()
        else:
            # ``EXIT P2`` ends the lanes of which P2 is true
            always &= one.opcode == "BPT.TRAP" or (one.base in _ENDS and not one.operands)
            after |= {one.target} if one.base == "WARPSYNC" and one.target is not None else set()
        if not always:
            after.add(following)
        found[pc] = tuple(sorted(place for place in after if place in code))
    return found, unknown


def _returns(image: Image, symbol: Symbol, code: Mapping[int, Instruction]) -> dict[int, set[int]]:
    """Where each ``RET`` can go on: after the calls of the function that it stands in."""
    within = [
        (one.address - symbol.address, one.address + one.size - symbol.address)
        for one in image.symbols
        if one.section == symbol.section and one.name != symbol.name
    ]
    calls = [one for one in code.values() if one.base == "CALL" and one.target is not None]

    def of(pc: int) -> tuple[int, int] | None:
        """The smallest function inside of this one that a place lies in."""
        around = [(start, end) for start, end in within if start <= pc < end]
        return min(around, key=lambda one: one[1] - one[0], default=None)

    return {
        pc: {
            call.pc + WIDTH
            for call in calls
            if of(pc) is None or of(call.target or 0) in (None, of(pc))
        }
        for pc, one in code.items()
        if one.base == "RET"
    }
