"""Forms of tcgen05.mma: f16 results, scaled and masked D, sparse A, weight-stationary products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tilesim import Builder, InvalidProgram, bf16, e4m3, f16, f32, s8, s32, tf32, u8, u32
from tilesim.arith.types import DType
from tilesim.checker import check
from tilesim.ir.ops.tcgen05_mma import METADATA_COLUMNS, Kind, LoadShape
from tilesim.sim.machine.simulate import simulate

from .tensor_cores import (
    RNG,
    allocate,
    barrier,
    build,
    copied,
    dump,
    fill,
    free,
    issuing,
    outputs,
    small,
)  # fmt: skip

# ---------------------------------------------------------------------- f16 results


def half_product(k: Builder, *, rows: int, n: int, kind: Kind, dtype: DType) -> None:
    """Twice ``a @ b.T`` with D in f16; its columns are read once packed and once as they lie."""
    k.launch(warps=4)
    depth = 256 // dtype.bits
    a, b = copied(k, "a", dtype, (rows, depth)), copied(k, "b", dtype, (n, depth))
    done, out, cells = (
        barrier(k, "done"), k.tensor("out", f16, (rows, n)), k.tensor("cells", u32, (rows, n))
    )  # fmt: skip
    address = allocate(k)
    zero = k.fragment("zero", u32, (128, n), "warpgroup")
    k.tile.fill(zero, 0)
    k.tcgen05.st(k.tcgen05.tensor(address, u32, (128, n), name="zero"), zero)
    k.tcgen05.wait_st()
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    fill(k, a, b)
    d = k.tcgen05.tensor(address, f16, (rows, n), name="d", packed=False)
    with issuing(k, done):
        k.tcgen05.fence_after_thread_sync()
        for repeat in range(2):
            k.tcgen05.mma(d, a[0], b[0], kind=kind, accumulate=repeat)
    shape: LoadShape = "32x32b" if rows == 128 else "16x128b"
    dump(k, k.tcgen05.tensor(address, f16, (128, n), packed=False), out, shape)
    dump(k, k.tcgen05.tensor(address, u32, (128, n)), cells, shape, "raw")
    free(k, address)


@pytest.mark.parametrize(("kind", "dtype"), [("f16", f16), ("f8f6f4", e4m3)])
@pytest.mark.parametrize("rows", [64, 128])
def test_f16_results_are_one_to_a_column(kind: Kind, dtype: DType, rows: int) -> None:
    depth = 256 // dtype.bits
    a, b = small(rows, depth), small(32, depth)
    got = outputs(half_product, {"ga": a, "gb": b}, rows=rows, n=32, kind=kind, dtype=dtype)
    expected = (2 * a @ b.T).astype(np.float16)
    np.testing.assert_array_equal(got["out"], expected)
    np.testing.assert_array_equal(got["cells"], expected.view(np.uint16).astype(np.uint32))


def test_what_is_stored_unpacked_is_loaded_packed() -> None:
    def program(k: Builder) -> None:
        k.launch(warps=4)
        source, out = k.tensor("source", f16, (128, 32)), k.tensor("out", f16, (128, 32))
        part, address = k.fragment("part", f16, (128, 32), "warpgroup"), allocate(k)
        d = k.tcgen05.tensor(address, f16, (128, 32), name="d", packed=False)
        k.tile.load(part, source)
        k.tcgen05.st(d, part)
        k.tcgen05.wait_st()
        dump(k, d, out)
        free(k, address)

    source = small(128, 32)
    np.testing.assert_array_equal(outputs(program, {"source": source})["out"], source)


# ---------------------------------------------------------------------- D: scaled, masked


def dressed(
    k: Builder, *, rows: int = 128, scale: int = 0, mask: tuple[int, ...] = (), first: int = 5
) -> None:
    """``a @ b.T + d * 2**-scale`` into a D full of ``first``, but for the lanes of ``mask``."""
    k.launch(warps=4)
    a, b = copied(k, "a", bf16, (rows, 16)), copied(k, "b", bf16, (32, 16))
    done, out = barrier(k, "done"), k.tensor("out", f32, (128, 32))
    address = allocate(k)
    whole = k.tcgen05.tensor(address, f32, (128, 32), name="d")
    part = k.fragment("part", f32, (128, 32), "warpgroup")
    k.tile.fill(part, first)
    k.tcgen05.st(whole, part)
    k.tcgen05.wait_st()
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    fill(k, a, b)
    with issuing(k, done):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(
            whole if rows == 128 else whole[0:64, :], a[0], b[0], scale_input_d=scale,
            disable_output_lane=mask,
        )  # fmt: skip
    dump(k, whole, out)
    free(k, address)


@pytest.mark.parametrize("scale", [0, 1, 15])
def test_the_accumulator_is_scaled_before_the_addition(scale: int) -> None:
    a, b = small(128, 16), small(32, 16)
    got = outputs(dressed, {"ga": a, "gb": b}, scale=scale)
    np.testing.assert_array_equal(got["out"], a @ b.T + np.float32(5 / 2**scale))


MASK = (0x0000FFFF, 0xFFFFFFFF, 0, 0x80000001)


@pytest.mark.parametrize("rows", [64, 128])
def test_disabled_lanes_keep_their_values(rows: int) -> None:
    a, b = small(rows, 16), small(32, 16)
    got = outputs(dressed, {"ga": a, "gb": b}, rows=rows, mask=MASK)
    lanes = np.arange(128)
    disabled = np.array([MASK[lane // 32] >> lane % 32 & 1 for lane in lanes], dtype=bool)
    row = lanes if rows == 128 else np.where(lanes % 32 < 16, lanes // 32 * 16 + lanes % 32, -1)
    expected = np.where(((row >= 0) & ~disabled)[:, None], (a @ b.T)[row] + 5, 5)
    np.testing.assert_array_equal(got["out"], expected)


def test_disabled_lanes_are_not_touched() -> None:
    """Somebody else may use them while the product is under way."""

    def program(k: Builder, *, mask: tuple[int, ...]) -> None:
        k.launch(warps=4)
        a, b = copied(k, "a", bf16, (128, 16)), copied(k, "b", bf16, (32, 16))
        done, address = barrier(k, "done"), allocate(k)
        fill(k, a, b)
        d = k.tcgen05.tensor(address, f32, (128, 32), name="d")
        with k.one_thread():
            k.tcgen05.mma(d, a[0], b[0], accumulate=0, disable_output_lane=mask)
            k.tcgen05.commit(done)
        with k.role("neighbour", 3):
            part = k.fragment("part", f32, (32, 32))
            k.tile.fill(part, 1)
            k.tcgen05.st(d, part)
            k.tcgen05.wait_st()
        k.mbarrier.wait(done, 0)
        k.tcgen05.fence_after_thread_sync()
        free(k, address)

    outputs(program, {}, mask=(0, 0, 0, 0xFFFFFFFF))
    report = check(build(program, mask=(0, 0, 0xFFFFFFFF, 0)))
    assert {f.rule for f in report.findings} == {"tcgen05-order"}


# ---------------------------------------------------------------------- sparse A


def compressed(kind: Kind, rows: int, depth: int) -> tuple[NDArray[Any], NDArray[Any], Any]:
    """A (rows, depth) with half of each group zero, its other half, and the group fields."""
    group = 2 if kind == "tf32" else 4
    choices = [0b0100, 0b1110] if kind == "tf32" else [4, 8, 12, 9, 13, 6, 14]
    fields = RNG.choice(choices, (rows, depth // group))
    kept = RNG.integers(1, 4, (rows, depth // 2))
    dense = np.zeros((rows, depth), dtype=int)
    for r in range(rows):
        for g in range(depth // group):
            code = int(fields[r, g])
            if kind == "tf32":
                dense[r, 2 * g + (code == 0b1110)] = kept[r, g]
            else:
                dense[r, 4 * g + code % 4] = kept[r, 2 * g]
                dense[r, 4 * g + code // 4] = kept[r, 2 * g + 1]
    return dense, kept, fields


def metadata_words(kind: Kind, fields: NDArray[Any]) -> NDArray[Any]:
    """The metadata of 128 rows as CuTe lays it out (`tmem_e_frg`, bit by bit).

    16-bit kinds: ((8, 2, 8), (16, 2)) : ((1, 2048, 16), (128, 8)) in units of one bit per element
    of K, lane = index % 128, bit = index // 128; tf32: ((8, 2, 8), (8, 2)) : ((1, 1024, 16),
    (128, 8)) in units of two bits; 8-bit kinds: (128, 64) : (1, 128) in bits.
    """
    words = np.zeros((128, METADATA_COLUMNS[kind]), dtype=np.uint32)
    unit = 2 if kind == "tf32" else 1
    for m in range(128):
        for k in range(fields.shape[1] * 4 // unit):
            if METADATA_COLUMNS[kind] == 2:
                index = m + 128 * k
            else:
                high, low = (1024, 8) if kind == "tf32" else (2048, 16)
                index = (
                    m % 8 + high * (m // 8 % 2) + 16 * (m // 16) + 128 * (k % low) + 8 * (k // low)
                )
            value = int(fields[m, k * unit // 4]) >> k * unit % 4 & (1 << unit) - 1
            bit = index // 128 * unit
            words[index % 128, bit // 32] |= np.uint32(value << bit % 32)
    return words


def sparse(
    k: Builder, *, kind: Kind, dtype: DType, acc: DType, column: int, synchronised: bool = True
) -> None:
    k.launch(warps=4)
    depth, columns = 256 // dtype.bits, METADATA_COLUMNS[kind]
    a, b = copied(k, "a", dtype, (128, depth)), copied(k, "b", dtype, (32, 2 * depth), 64)
    done, out = barrier(k, "done"), k.tensor("out", acc, (128, 32))
    meta = k.tensor("meta", u32, (128, columns))
    address = allocate(k)
    fields = k.tcgen05.tensor(address + column, u32, (128, columns), name="fields")
    words = k.fragment("words", u32, (128, columns), "warpgroup")
    k.tile.load(words, meta)
    k.tcgen05.st(fields, words)
    if synchronised:
        k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    fill(k, a, b)
    d = k.tcgen05.tensor(address + 64, acc, (128, 32), name="d")
    with k.one_thread():
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma_sp(d, a[0], b[0], fields, kind=kind, accumulate=0)
        k.tcgen05.commit(done)
    k.tcgen05.wait_st()
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    dump(k, d, out)
    free(k, address)


SPARSE = [("f16", bf16, f32), ("tf32", tf32, f32), ("f8f6f4", e4m3, f32), ("i8", s8, s32)]


@pytest.mark.parametrize(("kind", "dtype", "acc"), SPARSE)
def test_sparse_product(kind: Kind, dtype: DType, acc: DType) -> None:
    depth = 512 // dtype.bits
    dense, kept, fields = compressed(kind, 128, depth)
    b = small(32, depth)
    got = outputs(
        sparse, {"ga": kept, "gb": b, "meta": metadata_words(kind, fields)},
        kind=kind, dtype=dtype, acc=acc, column=2 if METADATA_COLUMNS[kind] == 2 else 3,
    )  # fmt: skip
    np.testing.assert_array_equal(got["out"], dense @ b.T)


def test_metadata_without_a_meaning_is_reported() -> None:
    program = build(sparse, kind="f16", dtype=bf16, acc=f32, column=0)
    run = simulate(program, {"meta": np.zeros((128, 1), dtype=np.uint32)})
    (finding,) = (f for f in run.findings if f.rule == "out-of-bounds")
    assert "the metadata fields of tcgen05.mma.sp says 0b0000 for row 0" in finding.message


def test_metadata_of_eight_bit_kinds_starts_at_an_even_column() -> None:
    report = check(build(sparse, kind="i8", dtype=s8, acc=s32, column=1))
    assert "out-of-bounds" in {f.rule for f in report.findings}


# ---------------------------------------------------------------------- weight-stationary


def stationary(k: Builder, *, rows: int, n: int, kind: Kind, dtype: DType, acc: DType) -> None:
    """The lanes and columns of D as they lie in tensor memory."""
    k.launch(warps=4)
    depth = 256 // dtype.bits
    a, b = copied(k, "a", dtype, (rows, depth)), copied(k, "b", dtype, (n, depth))
    columns = n * rows // 128
    done, out = barrier(k, "done"), k.tensor("out", acc, (128, columns))
    address = allocate(k, 256)
    fill(k, a, b)
    d = k.tcgen05.tensor(address, acc, (128, columns), name="d")
    with issuing(k, done):
        for repeat in range(2):
            k.tcgen05.mma_ws(d, a[0], b[0], kind=kind, accumulate=repeat)
    dump(k, d, out)
    free(k, address, 256)


@pytest.mark.parametrize(
    ("kind", "dtype", "acc"),
    [("f16", bf16, f32), ("tf32", tf32, f32), ("f8f6f4", e4m3, f32), ("i8", s8, s32)],
)
@pytest.mark.parametrize(("rows", "n"), [(32, 64), (32, 256), (64, 64), (64, 128), (128, 64)])
def test_weight_stationary_product(kind: Kind, dtype: DType, acc: DType, rows: int, n: int) -> None:
    depth = 256 // dtype.bits
    a, b = small(rows, depth), small(n, depth)
    got = outputs(stationary, {"ga": a, "gb": b}, rows=rows, n=n, kind=kind, dtype=dtype, acc=acc)
    # CuTe `tmem_frg_ws`: (rows, (n / folds, folds)) : (1, (128, rows)), lane = index % 128
    expected = np.zeros_like(got["out"])
    product = 2 * a @ b.T
    part = n * rows // 128
    for row in range(rows):
        for column in range(n):
            expected[row + rows * (column // part), column % part] = product[row, column]
    np.testing.assert_array_equal(got["out"], expected)


def test_forms_do_not_run_in_one_pipeline() -> None:
    """Issue order covers products of one form on one accumulator (G19)."""

    def program(k: Builder, *, mixed: bool) -> None:
        k.launch(warps=4)
        a, b = copied(k, "a", bf16, (128, 16)), copied(k, "b", bf16, (64, 16))
        done, address = barrier(k, "done"), allocate(k)
        fill(k, a, b)
        d = k.tcgen05.tensor(address, f32, (128, 64), name="d")
        with issuing(k, done):
            k.tcgen05.mma_ws(d, a[0], b[0], accumulate=0)
            if mixed:
                k.tcgen05.mma(d, a[0], b[0])
            else:
                k.tcgen05.mma_ws(d, a[0], b[0])
        free(k, address)

    outputs(program, {}, mixed=False)
    report = check(build(program, mixed=True))
    assert {f.rule for f in report.findings} == {"tcgen05-order"}


# ---------------------------------------------------------------------- targets


@pytest.mark.parametrize("target", ["sm_110a"])
def test_scale_input_d_is_not_on_every_target(target: str) -> None:
    k = Builder("kernel", target=target)
    dressed(k, scale=1)
    with pytest.raises(InvalidProgram, match=r"sm_110a has no scale-input-d of tcgen05.mma"):
        check(k.finish())


@pytest.mark.parametrize("form", ["mma_sp", "mma_ws"])
def test_integer_forms_are_not_on_every_target(form: str) -> None:
    k = Builder("kernel", target="sm_103a")
    if form == "mma_sp":
        sparse(k, kind="i8", dtype=s8, acc=s32, column=0)
    else:
        stationary(k, rows=128, n=64, kind="i8", dtype=s8, acc=s32)
    with pytest.raises(InvalidProgram, match=r"sm_103a has no tcgen05.mma.(sp|ws).kind::i8"):
        check(k.finish())


def narrow(k: Builder, *, a_type: Any, b_type: Any, **form: Any) -> None:
    """``out = a @ b.T`` of operands of which one or both have 4 or 6 bits."""
    k.launch(warps=4)
    a = copied(k, "a", e4m3 if a_type is None else u8, (128, 32))
    b = copied(k, "b", e4m3 if b_type is None else u8, (32, 32))
    done, out = barrier(k, "done"), k.tensor("out", f32, (128, 32))
    address = allocate(k)
    fill(k, a, b)
    d = k.tcgen05.tensor(address, f32, (128, 32), name="d")
    with issuing(k, done):
        k.tcgen05.mma(d, a[0], b[0], accumulate=0, a_type=a_type, b_type=b_type, **form)
    dump(k, d, out)
    free(k, address)


def worth(code: int, exponent: int, mantissa: int) -> float:
    """What the bits of a float without infinities are worth."""
    sign, bias = -1.0 if code >> exponent + mantissa & 1 else 1.0, (1 << exponent - 1) - 1
    field, rest = code >> mantissa & (1 << exponent) - 1, code & (1 << mantissa) - 1
    fraction = rest / (1 << mantissa)
    return sign * (
        2.0 ** (field - bias) * (1 + fraction) if field else 2.0 ** (1 - bias) * fraction
    )


def elements(stored: NDArray[Any], type_: str | None) -> NDArray[Any]:
    """Rows of 32 bytes as the 32 numbers that they hold."""
    if type_ is None:
        return stored
    exponent, mantissa = int(type_[1]), int(type_[3])
    bits = 1 + exponent + mantissa
    rows = []
    for row in stored.tolist():
        words = (int.from_bytes(bytes(row[i : i + 16]), "little") for i in (0, 16))
        codes = [word >> bits * i & (1 << bits) - 1 for word in words for i in range(16)]
        rows.append([worth(code, exponent, mantissa) for code in codes])
    return np.array(rows)


@pytest.mark.parametrize(
    ("a_type", "b_type"), [("e2m1", None), (None, "e2m3"), ("e3m2", "e2m1"), ("e2m3", "e3m2")]
)
def test_elements_of_four_and_six_bits_begin_each_sixteen_bytes(a_type: Any, b_type: Any) -> None:
    a = small(128, 32) if a_type is None else RNG.integers(0, 256, (128, 32))
    b = small(32, 32) if b_type is None else RNG.integers(0, 256, (32, 32))
    got = outputs(narrow, {"ga": a, "gb": b}, a_type=a_type, b_type=b_type)
    np.testing.assert_allclose(got["out"], elements(a, a_type) @ elements(b, b_type).T, rtol=1e-6)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({"a_type": "e2m1", "b_type": None, "kind": "i8"}, "kind::i8 has no e2m1 inputs"),
        ({"a_type": "e2m1", "b_type": None, "kind": "f16"}, "kind::f16 has no e2m1 inputs"),
        (
            {"a_type": "e2m3", "b_type": "e2m1", "b_trans": True},
            "transposed operand of e2m1 is not",
        ),
    ],
)
def test_only_some_kinds_have_elements_of_four_and_six_bits(form: Any, text: str) -> None:
    with pytest.raises(InvalidProgram, match=text):
        check(build(narrow, **form))
