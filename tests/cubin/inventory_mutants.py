"""Which mistakes in machine code an inventory sees: ``python -m tests.cubin.inventory_mutants``.

Of kernels of a corpus (`tests.translation.corpus`) a number that agrees is drawn, and its machine
code gets one mistake: an arrival is deleted, or the count of an mbarrier, bytes that it expects,
the threads of a named barrier or the registers of a ``setmaxnreg`` are others. What the inventory
says of the same number is counted.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from tests.translation.corpus import members
from tests.translation.rewritten import with_words, word
from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.errors import CubinError
from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.inventory import Compared, Inventory, inventory
from tilesim.cubin.sass import Function
from tilesim.loader.machine_code import kernels_of

#: NOP without its control bits, which are those of the instruction that it stands for
_NOP, _CONTROL = 0x7918, 0xFFFFF << 105
#: where numbers stand in instructions: the lowest bit, and how many
_IMMEDIATE, _THREADS, _REGISTERS = (32, 32), (42, 12), (32, 8)
#: what moves a number into a register
_MOVES = re.compile(r"U?MOV$|IMAD\.MOV|HFMA2")
#: bytes of a cubin, as larger ones take longer
_LARGEST = 60_000
#: kernels that are drawn for a mistake, and places in each
_TRIES, _PLACES = 40, 12

Found = Mapping[object, Compared]
#: of an inventory, the numbers that a mistake is about, and changes of words that may make one
Draw = Callable[[Image, Symbol, Function, Inventory], Iterator[tuple[object, dict[int, int]]]]


def numbers(of: Inventory) -> Found:
    """What is said of each number, by what it is of."""
    found: dict[object, Compared] = {}
    for row in of.mbarriers:
        for place in row.places:
            found["arrivals", place] = row.arrivals
            if row.bytes is not None:
                found["bytes", place] = row.bytes
    found |= {("named", row.number): row.count for row in of.named_barriers}
    if of.register_pool is not None:
        found["registers"] = of.register_pool
    return found


def _changed(image: Image, symbol: Symbol, pc: int, at: tuple[int, int], by: int) -> dict[int, int]:
    low, size = at
    mask = (1 << size) - 1
    bits = word(image, symbol, pc)
    new = (bits >> low & mask) + by & mask
    return {pc: bits & ~(mask << low) | new << low}


def deleted(
    image: Image, symbol: Symbol, code: Function, of: Inventory
) -> Iterator[tuple[object, dict[int, int]]]:
    for row in of.mbarriers:
        for site in row.sites:
            if site.arrives:
                nop = _NOP | word(image, symbol, site.pc) & _CONTROL
                yield ("arrivals", row.places[0]), {site.pc: nop}


def _moved_numbers(code: Function, value: int) -> Iterator[int]:
    for one in code.code.values():
        if _MOVES.match(one.opcode) and one.operands[-1] in (hex(value), f"0x{value:x}"):
            yield one.pc


def counted(
    image: Image, symbol: Symbol, code: Function, of: Inventory
) -> Iterator[tuple[object, dict[int, int]]]:
    for row in of.mbarriers:
        for pc in _moved_numbers(code, row.expected or 0):
            yield ("arrivals", row.places[0]), _changed(image, symbol, pc, _IMMEDIATE, 1)


def in_bytes(
    image: Image, symbol: Symbol, code: Function, of: Inventory
) -> Iterator[tuple[object, dict[int, int]]]:
    for row in of.mbarriers:
        for amount in {site.amount for site in row.sites if site.expects}:
            for pc in _moved_numbers(code, amount or 0):
                yield ("bytes", row.places[0]), _changed(image, symbol, pc, _IMMEDIATE, 16)


def in_threads(
    image: Image, symbol: Symbol, code: Function, of: Inventory
) -> Iterator[tuple[object, dict[int, int]]]:
    for row in of.named_barriers:
        for site in row.sites:
            if len(code.code[site.pc].operands) == 2:
                by = 32 if (row.number + site.pc) % 3 else -32
                yield ("named", row.number), _changed(image, symbol, site.pc, _THREADS, by)


def in_registers(
    image: Image, symbol: Symbol, code: Function, of: Inventory
) -> Iterator[tuple[object, dict[int, int]]]:
    for site in of.register_sites:
        yield "registers", _changed(image, symbol, site.pc, _REGISTERS, 8)


KINDS: Mapping[str, Draw] = {
    "an arrival is deleted": deleted,
    "the count of an mbarrier is one more": counted,
    "an mbarrier expects 16 bytes more": in_bytes,
    "a named barrier is of 32 threads more, or less": in_threads,
    "setmaxnreg asks for 8 registers more": in_registers,
}


def _expects(of: Inventory, key: object) -> object:
    """The numbers of a row that a mistake is to change."""
    match key:
        case ("arrivals" | "bytes", place):
            rows = [row for row in of.mbarriers if place in row.places]
            arrivals = sum(site.arrives for row in rows for site in row.sites)
            sizes = [site.amount for row in rows for site in row.sites if site.expects]
            return [row.expected for row in rows], arrivals, sizes
        case ("named", number):
            of_number = [row for row in of.named_barriers if row.number == number]
            return [site.amount for row in of_number for site in row.sites]
    return [site.registers for site in of.register_sites]


def judged(kind: str, paths: Sequence[Path], rng: random.Random) -> str | None:
    """What is said of a number with a mistake; None if none could be made."""
    for _ in range(_TRIES):
        image = Image((path := rng.choice(paths)).read_bytes(), path.name)
        symbols = kernels_of(image)
        if not symbols:
            continue
        symbol = rng.choice(symbols)
        before = inventory(image, symbol)
        right = numbers(before)
        (code,) = disassemble(image, (symbol,))
        drawn = [
            one for one in KINDS[kind](image, symbol, code, before)
            if one[0] in right and right[one[0]].answer == "agrees"
        ]  # fmt: skip
        for key, words in rng.sample(drawn, min(_PLACES, len(drawn))):
            try:
                after = inventory(with_words(image, symbol, words), symbol)
            except CubinError:
                continue
            if _expects(before, key) != _expects(after, key):
                found = numbers(after).get(key)
                answer = "no longer there" if found is None else found.answer
                if answer == "agrees":
                    click.echo(f"{path.name} {symbol.name} {key} {[*map(hex, words)]}", err=True)
                return answer
    return None


@click.command(help=__doc__)
@click.argument("corpus", type=click.Path(path_type=Path, exists=True))
@click.option("--count", default=40, show_default=True, help="Mistakes of each kind.")
@click.option("--ptxas", default="13.0", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Counts are put in here.")
def main(corpus: Path, count: int, ptxas: str, out: Path | None) -> None:
    """Draws mistakes, and counts answers."""
    of_version = (one.path for one in members(corpus) if one.ptxas == ptxas)
    paths = [path for path in of_version if path.stat().st_size <= _LARGEST]
    document = json.loads(out.read_text()) if out is not None and out.exists() else {}
    document["mutants"] = {}
    for kind in KINDS:
        rng = random.Random(kind)
        answers = Counter(found for _ in range(count) if (found := judged(kind, paths, rng)))
        document["mutants"][kind] = dict(sorted(answers.items()))
        click.echo(f"{kind}: {dict(answers)}")
    if out is not None:
        out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
