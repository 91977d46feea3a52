FN void alloc(u32 *to, u32 columns) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(at(to)), "r"(columns) : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
}
FN void dealloc(u32 tmem, u32 columns) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(columns));
}
FN void alloc_pair(u32 *to, u32 columns) {
  asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(at(to)), "r"(columns) : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;");
}
FN void dealloc_pair(u32 tmem, u32 columns) {
  asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(columns));
}
FN void before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
FN void after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
// K-major, no swizzle: core matrices of 128 bytes, two of them side by side along K
FN u64 matrix(const void *p) { return (u64)(at(p) >> 4) & 0x3fff | 8ull << 16 | 16ull << 32 | 1ull << 46; }
FN u32 kind_f16(u32 m, u32 n) { return 1 << 4 | n / 8 << 17 | m / 16 << 24; }
FN void mma(u32 d, u64 a, u64 b, u32 what, u32 add) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;}"
               ::"r"(d), "l"(a), "l"(b), "r"(what), "r"(add) : "memory");
}
FN void mma_pair(u32 d, u64 a, u64 b, u32 what, u32 add) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p;}"
               ::"r"(d), "l"(a), "l"(b), "r"(what), "r"(add) : "memory");
}
FN void mma_of_columns(u32 d, u32 a, u64 b, u32 what, u32 add) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p;}"
               ::"r"(d), "r"(a), "l"(b), "r"(what), "r"(add) : "memory");
}
FN void commit(u64 *b) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(at(b)) : "memory");
}
FN void commit_pair(u64 *b, unsigned short to) {
  asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
               ::"r"(at(b)), "h"(to) : "memory");
}
FN void load4(u32 tmem, u32 *v) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(tmem) : "memory");
}
FN void loaded() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
FN void store4(u32 tmem, u32 v) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x4.b32 [%0], {%1, %1, %1, %1};" ::"r"(tmem), "r"(v) : "memory");
}
FN void stored() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }
