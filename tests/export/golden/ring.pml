/* ring, cluster 0: one CTA, 3 warps each.
   Written by tilesim export --promela; to verify it:
   spin -a FILE && gcc -O2 -DSAFETY -o pan pan.c && ./pan   (search depth: -m)
   Rules such as A13 are those of tilesim's semantics. */
#define CTAS 1
#define WARPS 3
#define EVERYONE 7
#define MBARRIERS 4  /* of one CTA */
#define M_full 0
#define M_empty 2
#define UNIT 128  /* bytes are counted in this unit */
#define MOST 8191  /* largest tx-count (A3) */
#define NAMED 1  /* named barriers of one CTA */
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
short flying_0_full[CTAS * 2];  /* copies of 128 / UNIT bytes in flight */
byte joined[CTAS * NAMED];  /* warps in the open round, as a mask */
byte parked[CTAS * NAMED];  /* those that wait for its end */
byte arrived[CTAS * NAMED];
byte wanted[CTAS * NAMED];  /* warps of the round */
bit whole[CTAS * NAMED];  /* the round is of all warps that have not exited */
bit reduces[CTAS * NAMED];

/* E2, E9: ends the round if all have joined */
inline settle(m, cta) {
  if
  :: arrived[m] > 0 && (whole[m] -> (joined[m] | exited[cta]) == EVERYONE
                                  : arrived[m] >= wanted[m]) ->
       joined[m] = 0; parked[m] = 0; arrived[m] = 0; wanted[m] = 0; whole[m] = 0; reduces[m] = 0
  :: else
  fi
}

/* E5 to E7: a warp joins once per round; all with the same count; red is not mixed with others */
inline join(b, c, me, count, all, reduction, waits) {
  assert(!(joined[b] & me));
  assert(joined[b] == 0 || (wanted[b] == count && reduces[b] == reduction));
  joined[b] = joined[b] | me; arrived[b] = arrived[b] + 1;
  wanted[b] = count; whole[b] = all; reduces[b] = reduction;
  if
  :: waits -> parked[b] = parked[b] | me
  :: else
  fi;
  settle(b, c)
}

/* a warp exits: rounds of all live warps may complete (E9, D5) */
inline leave(cta, me) {
  exited[cta] = exited[cta] | me;
  settle(cta * NAMED, cta);
  skip
}

/* CTA 0, warp 0, producer */
active proctype cta0_warp0() {
  byte v_i;
  d_step { at = M_full; initialise(at, 1) };  /* programs.py mbarrier.init */
  d_step { at = M_empty; initialise(at, 2) };  /* programs.py mbarrier.init */
  d_step { at = M_full + 1; initialise(at, 1) };  /* programs.py mbarrier.init */
  d_step { at = M_empty + 1; initialise(at, 2) };  /* programs.py mbarrier.init */
  d_step { at = 0; join(at, 0, 1, 3, 1, 0, 1) };  /* programs.py barrier.sync */
  !(parked[0] & 1);  /* programs.py barrier.sync */
  v_i = 0;
  do  /* programs.py */
  :: (v_i < 4) ->
      d_step { !live[M_empty + (v_i % 2)] || (phase[M_empty + (v_i % 2)] & 1) != (((v_i / 2) & 1) ^ 1) -> assert(live[M_empty + (v_i % 2)]) };  /* programs.py mbarrier.wait */
      d_step { at = M_full + (v_i % 2); credit(at, 1, 128 / UNIT) };  /* programs.py mbarrier.arrive.expect_tx */
      d_step { assert(live[M_full + (v_i % 2)]); flying_0_full[(v_i % 2)] = flying_0_full[(v_i % 2)] + 1 };  /* programs.py cp.async.bulk.load */
      v_i = v_i + 1;
  :: else -> break
  od; skip;
  d_step { leave(0, 1) }
}

/* CTA 0, warp 1, consumer */
active proctype cta0_warp1() {
  byte v_i_1;
  d_step { at = 0; join(at, 0, 2, 3, 1, 0, 1) };  /* programs.py barrier.sync */
  !(parked[0] & 2);  /* programs.py barrier.sync */
  v_i_1 = 0;
  do  /* programs.py */
  :: (v_i_1 < 4) ->
      d_step { !live[M_full + (v_i_1 % 2)] || (phase[M_full + (v_i_1 % 2)] & 1) != ((v_i_1 / 2) & 1) -> assert(live[M_full + (v_i_1 % 2)]) };  /* programs.py mbarrier.wait */
      d_step { at = M_empty + (v_i_1 % 2); credit(at, 1, 0) };  /* programs.py mbarrier.arrive */
      v_i_1 = v_i_1 + 1;
  :: else -> break
  od; skip;
  d_step { leave(0, 2) }
}

/* CTA 0, warp 2, consumer */
active proctype cta0_warp2() {
  byte v_i_1;
  d_step { at = 0; join(at, 0, 4, 3, 1, 0, 1) };  /* programs.py barrier.sync */
  !(parked[0] & 4);  /* programs.py barrier.sync */
  v_i_1 = 0;
  do  /* programs.py */
  :: (v_i_1 < 4) ->
      d_step { !live[M_full + (v_i_1 % 2)] || (phase[M_full + (v_i_1 % 2)] & 1) != ((v_i_1 / 2) & 1) -> assert(live[M_full + (v_i_1 % 2)]) };  /* programs.py mbarrier.wait */
      d_step { at = M_empty + (v_i_1 % 2); credit(at, 1, 0) };  /* programs.py mbarrier.arrive */
      v_i_1 = v_i_1 + 1;
  :: else -> break
  od; skip;
  d_step { leave(0, 4) }
}

active proctype engine() {
end:
  do
  :: d_step { flying_0_full[0] > 0 -> flying_0_full[0] = flying_0_full[0] - 1;
       running(0); credit(0, 0, -(128 / UNIT)) }
  :: d_step { flying_0_full[1] > 0 -> flying_0_full[1] = flying_0_full[1] - 1;
       running(0); credit(1, 0, -(128 / UNIT)) }
  od
}
