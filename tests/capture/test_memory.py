"""What is known of a program's memory."""

from __future__ import annotations

from struct import pack

from tilesim.capture.memory import DEVICE, HOST, Memory

BASE, OTHER = 0x300000000000, 0x300000800000


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


def test_contents_with_addresses_are_not_given_and_addresses_are_followed() -> None:
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
    assert found.contents(one, read) is None
    assert found.reachable([one], read) == [one, other]
    assert found.reachable([other], read) == [other]
