// Wrappers of one instruction each, beside those of tests/ptx/cuda/head.cu.
#pragma once
#include "head.cu"
#define KERNEL extern "C" __global__ void
// A wait as CUTLASS writes it: the loop is in the assembly, in order of the CTA.
FN void spin(u64 *b, u32 parity) {
  asm volatile("{.reg .pred p;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;}"
               ::"r"(at(b)), "r"(parity) : "memory");
}
FN void expect_only(u64 *b, u32 n) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory");
}
FN void complete(u64 *b, u32 n) {
  asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory");
}
FN u64 arrive_n(u64 *b, u32 n) {
  u64 token; asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], %2;" : "=l"(token) : "r"(at(b)), "r"(n) : "memory");
  return token;
}
FN void drop(u64 *b) { asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];" ::"r"(at(b)) : "memory"); }
FN void bar_sync(u32 id, u32 n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
FN int load(const int *p) { int v; asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
FN void store(int *p, int v) { asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
FN int add(int *p, int v) {
  int old; asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory"); return old;
}
// Two stages, four warps that read them, and a warp that fills them.
#define RING \
  __shared__ alignas(128) float buf[2][256]; __shared__ alignas(8) u64 full[2], empty[2]; \
  const int w = threadIdx.x / 32, lane = threadIdx.x % 32, t = threadIdx.x % 128
