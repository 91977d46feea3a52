"""What is known of a program's memory."""

from __future__ import annotations

from struct import pack

from tilesim.capture.memory import DEVICE, HOST, Memory
from tilesim.ptx.launch import Address, Contents, Pointer
from tilesim.ptx.parameters import Described
from tilesim.ptx.syntax import Place, Variable

BASE, OTHER, LAST = 0x300000000000, 0x300000800000, 0x300000900000


def memory() -> Memory:
    made = Memory()
    made.allocate(BASE, 64, DEVICE)
    made.allocate(OTHER, 64, DEVICE)
    return made


def test_what_the_host_has_written_is_known_until_it_is_forgotten() -> None:
    found = memory()
    one = found.at(BASE)
    assert one is not None
    found.copied(BASE, 0, 32)
    assert (one.knows(0, 32), one.knows(0, 33)) == (True, False)
    found.copied(BASE + 32, 0, 32)
    assert one.knows(0, 64)
    one.forget(16, 48)
    assert [one.knows(0, 16), one.knows(15, 17), one.knows(48, 64)] == [True, False, True]
    one.forget()
    assert not one.knows(0, 1)


def test_a_copy_of_what_nobody_knows_is_not_known() -> None:
    found = memory()
    one = found.at(BASE)
    assert one is not None
    found.copied(BASE, 0, 64)
    found.copied(BASE + 16, OTHER, 16)
    assert [one.knows(0, 16), one.knows(16, 17), one.knows(32, 64)] == [True, False, True]
    found.copied(OTHER, BASE, 16)
    found.copied(BASE + 16, OTHER, 16)
    assert one.knows(0, 64)


def test_memory_of_the_host_is_never_known() -> None:
    found = memory()
    found.allocate(OTHER, 64, HOST)
    found.copied(OTHER, 0, 64)
    one = found.at(OTHER)
    assert one is not None
    assert not one.known


def test_the_end_of_an_allocation_belongs_to_it() -> None:
    found = memory()
    inside, end, behind = (found.at(BASE + n) for n in (63, 64, 65))
    assert inside is not None
    assert inside is end
    assert behind is None
    assert found.at(BASE - 1) is None
    assert found.free(BASE) is inside
    assert found.at(BASE) is None
    assert found.free(BASE) is None


def test_contents_are_those_that_are_known_and_addresses_in_them_are_followed() -> None:
    found = memory()
    data = {BASE: pack("<8Q", 0, OTHER + 8, *[0] * 6), OTHER: bytes(64)}

    def read(address: int, size: int) -> bytes:
        return data[address][:size]

    one, other = found.at(BASE), found.at(OTHER)
    assert one is not None
    assert other is not None
    assert found.contents(other, read) is None
    for place in (BASE, OTHER):
        found.copied(place, 0, 64)
    assert found.contents(other, read) == bytes(64)
    assert found.contents(one, read) == data[BASE]
    assert found.addresses_in(data[BASE]) == {1: (other, 8)}
    assert found.reachable([one], read) == [one, other]
    assert found.reachable([other], read) == [other]


def test_tables_of_addresses_are_described() -> None:
    """A table with the address of another one, which has that of the first and of a parameter."""
    found = memory()
    found.allocate(LAST, 16, DEVICE)
    data = {BASE: pack("<8Q", 0, OTHER + 8, *[5] * 6), OTHER: pack("<8Q", BASE, LAST, *[0] * 6)}
    described = Described(found, lambda data: False, lambda one: data.get(one.base))
    address = Variable("p", "param", "u64", (), 1, 8, Place(1, 1))
    first = described.parameter(0, address, pack("<Q", BASE))
    last = described.parameter(1, address, pack("<Q", LAST + 4))
    table = Contents("u64", (0, Address("arg0[1]", 8), *[5] * 6))
    assert first == Pointer("arg0", 64, contents=table)
    assert last == Pointer("arg1", 16, 4)
    behind = Contents("u64", (Address("arg0"), Address("arg1"), *[0] * 6))
    assert described.buffers() == (Pointer("arg0[1]", 64, contents=behind),)
    assert [one.base for one in described.used] == [BASE, OTHER, LAST, BASE, LAST]
