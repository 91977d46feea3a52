"""Names of C++ as reports show them; what compilers made of them is from g++ and NVRTC."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.ptx.test_check import ARRIVE, INIT, WAIT
from tilesim.checker import check
from tilesim.ptx.demangle import readable, short, shown
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_ZZ1fE4full", "f::full"), ("_Z4gemmPf", "gemm"), ("global_smem", "global_smem"),
        ("_ZN2ns1S1fEi", "ns::S::f"), ("_ZN2ns5tableE", "ns::table"), ("_ZNK2ns1S1gEf", "ns::S::g"),
        ("_ZZNK2ns1S1gEfE1y", "ns::S::g::y"), ("_ZZ3twoiPiPFviEE4full", "two::full"),
        ("_ZZ3twoiPiPFviEE4full_0", "two::full#2"), ("_ZZ3twoiPiPFviEE4full__10_", "two::full#12"),
        ("_ZN2ns4gemmIfLin3EEEPiPT_PKf", "ns::gemm<float, -3>"),
        ("_ZN2ns4gemmIPNS_4TileILi128ELb1EhEELi64EEEPiPT_PKf",
         "ns::gemm<...::Tile<128, true, unsigned char>*, 64>"),
        ("_ZZN2ns4manyIJilPKcEEEPiDpT_E4full", "ns::many<int, long, char const*>::full"),
        ("_ZZN2ns2ofILi1ELb0EdEEPiNS_4TileIXT_EXT0_ET1_EEPS4_E4full",
         "ns::of<1, false, double>::full"),
        ("_ZZN2ns3hidENS_12_GLOBAL__N_16HiddenEE1x", "ns::hid::x"),
        ("_ZN12_GLOBAL__N_11kE", "(anonymous namespace)::k"),
        ("_Z4gemmPf.kd", "gemm"), ("_Z", "_Z"), ("_Z9short", "_Z9short"), ("_ZZ1fE", "_ZZ1fE"),
        ("_ZN1a1bE1", "_ZN1a1bE1"), ("_ZTV4Base", "_ZTV4Base"),
    ],
)  # fmt: skip
def test_names(mangled: str, name: str) -> None:
    assert readable(mangled) == name


def test_arguments_that_make_a_name_long_are_not_shown() -> None:
    kind = "4TileILi128ELb1EhE"
    name = f"_ZN2ns4gemmI{kind * 3}E4fullI{kind}EE"
    assert readable(name) == "ns::gemm<...>::full<...>"
    assert short(name) == readable(name)
    few = f"_ZN2ns4gemmI{kind}EE"
    assert (short(few), readable(few)) == (few, "ns::gemm<Tile<128, true, unsigned char>>")


@given(st.text("_ZNESTIJLKPFAXDp0123456789abvfi.$", max_size=30))
@example("L0")  # a name of no letters
@example("1fFE")  # a function that returns nothing at all
def test_no_name_is_too_strange(text: str) -> None:
    assert readable(f"_Z{text}")


def test_names_that_would_look_alike_stay_as_they_are() -> None:
    """Overloads differ in their parameters only, which are not shown."""
    names = ("_ZZ1fiE1a", "_ZZ1ffE1a", "_ZZ1giE1a")
    assert shown(names) == {"_ZZ1fiE1a": "_ZZ1fiE1a", "_ZZ1ffE1a": "_ZZ1ffE1a", "_ZZ1giE1a": "g::a"}


def test_reports_name_the_kernel_and_its_variables_as_the_source_does() -> None:
    head = (
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry _Z1fPf()\n{\n"
        ".shared .align 8 .b8 _ZZ1fPfE4full[8]; .reg .pred %p<9>; .reg .b32 %r<9>;\n"
    )
    wrong = f"{head}{INIT}{WAIT}ret;\n}}\n".replace("smem", "_ZZ1fPfE4full")
    launch = Launch("_Z1fPf", (1, 1, 1), (32, 1, 1))
    module = read(wrong, "k.ptx")
    found = check(lower(module, module.entries[0], launch))
    assert found.rules == {"deadlock"}
    (who,) = found.findings[0].participants
    assert who.role == "f"
    assert "f::full" in found.findings[0].message + " ".join(found.findings[0].notes)
    right = read(wrong.replace(WAIT, ARRIVE + WAIT), "k.ptx")
    assert check(lower(right, right.entries[0], launch)).verdict == "proved"
