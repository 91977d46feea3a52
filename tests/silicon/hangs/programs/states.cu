// Barriers in known states; the warp waits for the last of them. What each holds: tests/silicon/hangs/own.py.
#include "hang.cuh"
KERNEL __launch_bounds__(32) states(u64 *tokens) {
  __shared__ alignas(8) u64 b[20];
  if (threadIdx.x == 0) {
    init(b + 0, 1);
    init(b + 1, 1048575);
    init(b + 2, 5), tokens[2] = arrive_n(b + 2, 1);
    init(b + 3, 5), tokens[3] = arrive_n(b + 3, 3);
    init(b + 4, 5), tokens[4] = arrive_n(b + 4, 5);
    init(b + 5, 2), arrive_n(b + 5, 2), tokens[5] = arrive_n(b + 5, 2);
    init(b + 6, 2), expect_only(b + 6, 1);
    init(b + 7, 2), expect_only(b + 7, 1024);
    init(b + 8, 2), expect_only(b + 8, 1048575);
    init(b + 9, 2), complete(b + 9, 1);
    init(b + 10, 2), complete(b + 10, 1024);
    init(b + 11, 2), expect_only(b + 11, 1024), complete(b + 11, 256);
    init(b + 12, 1), expect(b + 12, 4096);
    init(b + 13, 1), expect(b + 13, 4096), complete(b + 13, 4096);
    init(b + 14, 5), drop(b + 14);
    init(b + 15, 5), drop(b + 15), arrive_n(b + 15, 4);
    init(b + 16, 2), expect(b + 16, 16), arrive(b + 16);
    init(b + 17, 3), arrive_n(b + 17, 3), arrive_n(b + 17, 3), arrive_n(b + 17, 3), arrive_n(b + 17, 1);
    init(b + 18, 1), expect(b + 18, 65536), complete(b + 18, 65520);
    init(b + 19, 2), expect(b + 19, 48);
  }
  __syncwarp();
  spin(b + 19, 0);  // @wait
}
