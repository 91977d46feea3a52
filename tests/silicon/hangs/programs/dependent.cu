// The second kernel waits for the end of the first, which waits for a word that the second writes.
#include "hang.cuh"
KERNEL __launch_bounds__(32) first(int *flag) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  while (load(flag) == 0) {}  // @culprit @poll
}
KERNEL __launch_bounds__(32) second(int *flag) {
#ifdef FIXED
  if (threadIdx.x == 0) store(flag, 1);
#endif
  asm volatile("griddepcontrol.wait;" ::: "memory");  // @wait
#ifndef FIXED
  if (threadIdx.x == 0) store(flag, 1);
#endif
}
