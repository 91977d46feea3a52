"""Values of registers that are found against those that a thread comes to, by executing it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from random import Random

from tests.gpu import needs
from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.image import Image
from tilesim.cubin.sass import Function
from tilesim.cubin.value_sets import ValueSets

from . import compiled, test_value_sets
from .interpreter import Thread

pytestmark = [needs.compiler, needs.disassembler]

SOURCES = Path(__file__).parents[1] / "ptx" / "cuda"
HEAD = (SOURCES / "head.cu").read_text()
THREADS, STEPS = 4, 600


def images() -> dict[str, Image]:
    texts = {
        name: HEAD + (SOURCES / f"{name}.cu").read_text()
        for name in ("pipeline", "multicast", "tokens")
    }
    found = {name: compiled.image(text, lines=False) for name, text in texts.items()}
    own = test_value_sets.source()
    return found | {arch: compiled.image(own, arch, lines=False) for arch in ("sm_90a", "sm_100a")}


def check(function: Function, threads: int) -> int:
    """How many places were executed at which addresses of mbarriers are known. Half of the threads
    run with what is known of nothing but the CTA, half with constant banks and special registers.
    """
    seen = set()
    for told in (False, True):
        random = Random(f"{function.name} {told}")
        given = {"SR_CgaCtaId": 0}
        if told:
            words = {f"c[0x0][{at:#x}]": random.randrange(9) for at in range(0x200, 0x400, 4)}
            given |= {**words, "SR_TID.X": random.randrange(256)}

        def known(name: str, pc: int, given: dict[str, int] = given) -> Collection[int] | None:
            return {given[name]} if name in given else None

        sets = ValueSets(function, known)
        found: dict[int, frozenset[int] | None] = {}
        for _ in range(threads):
            for pc, address in Thread(function, random, given).run(STEPS):
                if pc not in found:
                    found[pc] = sets.address(pc)
                values = found[pc]
                if values is not None:
                    here = f"{function.name} {pc:#x} {function.code[pc]}: {address:#x}"
                    assert address in values, here
                    seen.add(pc)
    return len(seen)


def test_each_address_of_an_execution_is_in_the_set() -> None:
    functions = [one for image in images().values() for one in disassemble(image, image.functions)]
    assert sum(check(one, THREADS) for one in functions) > 120
