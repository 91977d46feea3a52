"""Helper functions of the emitted code; a kernel contains only those it calls."""

from __future__ import annotations

from tilesim.records import dataclass

#: type names of the emitted code; raw bits stand for the floats that C++ does not have
TYPES = """\
typedef unsigned char u8;       typedef signed char s8;
typedef unsigned short u16;     typedef short s16;
typedef unsigned int u32;       typedef int s32;
typedef unsigned long long u64; typedef long long s64;
typedef float f32;              typedef double f64;
#define DEVICE __device__ __forceinline__"""


@dataclass(frozen=True)
class Helper:
    """The text of a helper, and the helpers it needs before it."""

    text: str
    needs: tuple[str, ...] = ()


HELPERS: dict[str, Helper] = {}


def helper(name: str, text: str, *needs: str) -> None:
    """Adds a helper function to the prelude."""
    HELPERS[name] = Helper(text.strip("\n"), needs)


helper("TensorMap", "struct alignas(64) TensorMap { u64 opaque[16]; };")
helper("Pair", "template <class T> struct alignas(2 * sizeof(T)) Pair { T x, y; };")
helper(
    "swizzle",
    """
// 16-byte chunk c of 128-byte line r moves to c ^ (r & MASK)
template <u32 MASK> DEVICE u32 swizzle(u32 offset) {
  return offset ^ ((offset >> 7 & MASK) << 4);
}""",
)
helper("minimum", "template <class T> DEVICE T minimum(T a, T b) { return b < a ? b : a; }")
helper("maximum", "template <class T> DEVICE T maximum(T a, T b) { return a < b ? b : a; }")
for _name in ("minimum", "maximum"):
    HELPERS[_name] = Helper(
        HELPERS[_name].text
        + f"""
// one instruction; NaN if either is
template <> DEVICE f32 {_name}<f32>(f32 a, f32 b) {{
  f32 result;
  asm("{_name[:3]}.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}}"""
    )
helper(
    "exp2_ftz",
    """
// one instruction; results below the normal numbers are zero
DEVICE f32 exp2_ftz(f32 x) {
  f32 result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}""",
)
for _name, _operator, _all in (("left", "<<", "0"), ("right", ">>", "a < 0 ? (T)-1 : (T)0")):
    helper(
        f"shift_{_name}",
        f"""
// a count is unsigned; one of the width or more shifts everything out
template <class T> DEVICE T shift_{_name}(T a, s64 n) {{
  return (u64)n < 8 * sizeof(T) ? a {_operator} n : {_all};
}}""",
    )
helper(
    "floor_div",
    """
// the least number divided by -1 is itself
template <class T> DEVICE T floor_div(T a, T b) {
  if ((T)-1 < (T)0 && b == (T)-1) return (T)(0 - (u64)a);
  const T q = a / b;
  return q - (T)((a % b != 0) && ((a < 0) != (b < 0)));
}""",
)
helper(
    "floor_mod",
    """
template <class T> DEVICE T floor_mod(T a, T b) {
  if ((T)-1 < (T)0 && b == (T)-1) return 0;
  const T r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}""",
)
helper(
    "floor_mod_float",
    """
template <class T> DEVICE T floor_mod_float(T a, T b) {
  const T r = fmod(a, b);
  return r == 0 ? copysign((T)0, b) : (r < 0) != (b < 0) ? r + b : r;
}""",
)
helper(
    "floor_div_float",
    """
template <class T> DEVICE T floor_div_float(T a, T b) {
  const f64 x = a, y = b, q = (x - floor_mod_float<f64>(x, y)) / y, n = floor(q);
  return (T)(q == 0 ? copysign(0.0, x / y) : q - n > 0.5 ? n + 1 : n);
}""",
    "floor_mod_float",
)
helper(
    "map_to_cta",
    """
// the address of the same variable in the shared memory of CTA `rank` of the cluster
DEVICE u32 map_to_cta(u32 address, u32 rank) {
  u32 result;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(rank));
  return result;
}""",
)
helper(
    "elect_sync",
    """
// the elected lane acts for all: what the others did is ordered before what it does
DEVICE u32 elect_sync(u32 mask) {
  __syncwarp(mask);
  u32 elected;
  asm volatile("{\\n.reg .pred p;\\nelect.sync _|p, %1;\\nselp.u32 %0, 1, 0, p;\\n}"
               : "=r"(elected) : "r"(mask) : "memory");
  return elected;
}""",
)
helper(
    "elect_lane",
    """
// orders nothing between the lanes
DEVICE u32 elect_lane(u32 mask) {
  u32 elected;
  asm volatile("{\\n.reg .pred p;\\nelect.sync _|p, %1;\\nselp.u32 %0, 1, 0, p;\\n}"
               : "=r"(elected) : "r"(mask) : "memory");
  return elected;
}""",
)
helper(
    "globaltimer",
    """
DEVICE u64 globaltimer() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}""",
)
helper(
    "perturb",
    """
// waits at random: what the seed, the warp and the number of calls say. nanosleep returns before
// the warp sleeps: clocks that are read after it would be too early
DEVICE void perturb(u32 seed, u32 warp, u32& calls) {
  u32 h = seed ^ warp * 0x9e3779b9u ^ ++calls * 0x85ebca6bu;
  h ^= h >> 16; h *= 0x7feb352du; h ^= h >> 15; h *= 0x846ca68bu; h ^= h >> 16;
  if (h & 3) return;
  const s64 start = clock64();
  while (clock64() - start < h >> 19) {}
}""",
)
helper(
    "bf16_to_f32",
    "DEVICE f32 bf16_to_f32(u16 x) { return __uint_as_float((u32)x << 16); }",
)
helper(
    "f32_to_bf16",
    """
DEVICE u16 f32_to_bf16(f32 x) {
  u16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(x));
  return result;
}""",
)
helper(
    "f16_to_f32",
    """
DEVICE f32 f16_to_f32(u16 x) {
  f32 result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x));
  return result;
}""",
)
helper(
    "f32_to_f16",
    """
DEVICE u16 f32_to_f16(f32 x) {
  u16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(x));
  return result;
}""",
)
for _kind in ("bf16", "f16"):
    helper(
        f"f32_to_{_kind}x2",
        f"""
// two neighbours of a fragment by one instruction
DEVICE void f32_to_{_kind}x2(u16* target, f32 x, f32 y) {{
  u32 pair;
  asm("cvt.rn.{_kind}x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
  memcpy(target, &pair, sizeof pair);
}}""",
    )
for _kind in ("e4m3", "e5m2"):
    helper(
        f"{_kind}_to_f32",
        f"""
DEVICE f32 {_kind}_to_f32(u8 x) {{
  u32 halves;
  asm("cvt.rn.f16x2.{_kind}x2 %0, %1;" : "=r"(halves) : "h"((u16)x));
  return f16_to_f32((u16)halves);
}}""",
        "f16_to_f32",
    )
    helper(
        f"f32_to_{_kind}",
        f"""
// saturates: values beyond the largest finite one become that one
DEVICE u8 f32_to_{_kind}(f32 x) {{
  u16 pair;
  asm("cvt.rn.satfinite.{_kind}x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return (u8)pair;
}}""",
    )
