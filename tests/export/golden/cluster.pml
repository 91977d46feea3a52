/* cluster, cluster 0: CTAs 0, 1, 1 warps each.
   Written by tilesim export --promela; to verify it:
   spin -a FILE && gcc -O2 -DSAFETY -o pan pan.c && ./pan   (search depth: -m)
   Rules such as A13 are those of tilesim's semantics. */
#define CTAS 2
#define WARPS 1
#define EVERYONE 1
#define MBARRIERS 2  /* of one CTA */
#define M_full 0
#define M_done 1
#define UNIT 128  /* bytes are counted in this unit */
#define MOST 8191  /* largest tx-count (A3) */
byte exited[CTAS];  /* warps, as a mask per CTA */
hidden int at;  /* the barrier of the current step */

/* shared memory ends with its CTA (A8, D9) */
inline running(cta) { assert(exited[cta] != EVERYONE) }
bit live[CTAS * MBARRIERS];
bit phase[CTAS * MBARRIERS];  /* its parity */
#define NEXT(p) (1 - p)
byte expected[CTAS * MBARRIERS];
byte pending[CTAS * MBARRIERS];
short tx[CTAS * MBARRIERS];

/* A.3: ends the phase if nothing is pending */
inline complete(m) {
  if
  :: pending[m] == 0 && tx[m] == 0 -> phase[m] = NEXT(phase[m]); pending[m] = expected[m]
  :: else
  fi
}

/* A.3: arrivals and bytes in one step; A13: no more arrivals than the phase has pending; U6: none
   of anything once all threads have dropped */
inline credit(b, arrivals, bytes) {
  assert(live[b]);
  assert(arrivals <= pending[b] && (pending[b] > 0 || tx[b] != 0));
  assert(tx[b] + bytes <= MOST && tx[b] + bytes >= -MOST);
  pending[b] = pending[b] - arrivals;
  tx[b] = tx[b] + bytes;
  complete(b)
}

/* A16: later phases expect fewer arrivals */
inline drop(d, arrivals) {
  assert(live[d] && arrivals <= pending[d] && arrivals <= expected[d]);
  expected[d] = expected[d] - arrivals
}

/* A5, A6 */
inline initialise(b, count) {
  assert(!live[b] && count >= 1);
  live[b] = 1; phase[b] = 0; expected[b] = count; pending[b] = count; tx[b] = 0
}

inline invalidate(b) {
  assert(live[b]);
  live[b] = 0; phase[b] = 0; expected[b] = 0; pending[b] = 0; tx[b] = 0
}
short flying_0_full[CTAS * 1];  /* copies of 128 / UNIT bytes in flight */

/* D2: per warp 0, 1 (it has arrived) or 2 (the round is complete, it has not waited yet) */
byte round[CTAS * WARPS];
hidden int i;
hidden byte missing;

inline settle_cluster() {
  missing = 0;
  i = 0;
  do
  :: i < CTAS * WARPS ->
       if
       :: round[i] != 1 && !((exited[i / WARPS] >> (i % WARPS)) & 1) -> missing = 1
       :: else
       fi;
       i = i + 1
  :: else -> break
  od;
  i = 0;
  do
  :: i < CTAS * WARPS ->
       if
       :: !missing && round[i] == 1 -> round[i] = 2
       :: else
       fi;
       i = i + 1
  :: else -> break
  od
}

/* a warp exits: rounds of all live warps may complete (E9, D5) */
inline leave(cta, me) {
  exited[cta] = exited[cta] | me;
  settle_cluster();
  skip
}

/* CTA 0, warp 0 */
active proctype cta0_warp0() {
  d_step { at = M_full; initialise(at, 1) };  /* programs.py mbarrier.init */
  d_step { at = M_done; initialise(at, 2) };  /* programs.py mbarrier.init */
  d_step { assert(round[0] == 0); round[0] = 1; settle_cluster() };  /* programs.py barrier.cluster.arrive */
  d_step { round[0] != 1 -> assert(round[0] == 2); round[0] = 0 };  /* programs.py barrier.cluster.wait */
  d_step { at = M_full; credit(at, 1, 128 / UNIT) };  /* programs.py mbarrier.arrive.expect_tx */
  d_step { running(1); assert(live[M_full]); flying_0_full[0] = flying_0_full[0] + 1; assert(live[1 * MBARRIERS + M_full]); flying_0_full[1 * 1] = flying_0_full[1 * 1] + 1 };  /* programs.py cp.async.bulk.load */
  d_step { !live[M_full] || (phase[M_full] & 1) != 0 -> assert(live[M_full]) };  /* programs.py mbarrier.wait */
  d_step { at = M_done; credit(at, 1, 0) };  /* programs.py mbarrier.arrive */
  d_step { !live[M_done] || (phase[M_done] & 1) != 0 -> assert(live[M_done]) };  /* programs.py mbarrier.wait */
  d_step { leave(0, 1) }
}

/* CTA 1, warp 0 */
active proctype cta1_warp0() {
  d_step { at = 1 * MBARRIERS + M_full; initialise(at, 1) };  /* programs.py mbarrier.init */
  d_step { at = 1 * MBARRIERS + M_done; initialise(at, 2) };  /* programs.py mbarrier.init */
  d_step { assert(round[1] == 0); round[1] = 1; settle_cluster() };  /* programs.py barrier.cluster.arrive */
  d_step { round[1] != 1 -> assert(round[1] == 2); round[1] = 0 };  /* programs.py barrier.cluster.wait */
  d_step { at = 1 * MBARRIERS + M_full; credit(at, 1, 128 / UNIT) };  /* programs.py mbarrier.arrive.expect_tx */
  d_step { !live[1 * MBARRIERS + M_full] || (phase[1 * MBARRIERS + M_full] & 1) != 0 -> assert(live[1 * MBARRIERS + M_full]) };  /* programs.py mbarrier.wait */
  d_step { running(0); at = M_done; credit(at, 1, 0) };  /* programs.py mbarrier.arrive */
  d_step { leave(1, 1) }
}

active proctype engine() {
end:
  do
  :: d_step { flying_0_full[0] > 0 -> flying_0_full[0] = flying_0_full[0] - 1;
       running(0); credit(0, 0, -(128 / UNIT)) }
  :: d_step { flying_0_full[1] > 0 -> flying_0_full[1] = flying_0_full[1] - 1;
       running(1); credit(2, 0, -(128 / UNIT)) }
  od
}
