"""What lanes of a warp know of each other: only bar.warp.sync, and barriers that include both,
order what different ones do (E11)."""

from __future__ import annotations

from tilesim import Builder, ds, kernel, s32, u32
from tilesim.ir.ops.scalar import AtomicSem


@kernel(warps=1)
def words_read_in_reverse(k: Builder) -> None:
    """A shuffle is no meeting."""
    words, value = k.shared("words", u32, (32,)), k.var("value", 0, u32)
    k.mem.store(words[k.lane_id], k.lane_id)  # error 1 2: race
    k.mem.shuffle(value, k.lane_id, 0)  # wrong 2
    k.sync_warp()  # ok 1 2
    k.mem.load(value, words[31 - k.lane_id])  # error 1 2: race


@kernel(warps=1)
def words_in_global_memory(k: Builder) -> None:
    words, value = k.tensor("words", u32, (32,)), k.var("value", 0, u32)
    k.mem.store(words[k.lane_id], k.lane_id)  # error 1 2: race
    k.mem.shuffle(value, k.lane_id, 0)  # wrong 2
    k.sync_threads()  # ok 1 2
    k.mem.load(value, words[31 - k.lane_id])  # error 1 2: race


@kernel(warps=1)
def a_lane_comes_after_itself(k: Builder) -> None:
    words, value, shift = k.shared("words", u32, (64,)), k.var("value", 0, u32), 0
    shift = 1  # wrong
    with k.loop(3) as i:
        k.mem.store(words[k.lane_id], i)  # error: race
        k.mem.load(value, words[(k.lane_id + shift) % 32])  # error: race


@kernel(warps=2)
def an_mbarrier_that_all_lanes_pass(k: Builder) -> None:
    bar, words, value = k.mbarriers("bar"), k.shared("words", u32, (32,)), k.var("value", 0, u32)
    with k.one_thread():
        k.mbarrier.init(bar, 32)
    k.sync_threads()
    with k.role("exchange", 1):
        k.mem.store(words[k.lane_id], 1)  # error: race
        k.mbarrier.arrive(bar)
        k.mbarrier.wait(bar, 0)  # ok
        k.mem.load(value, words[31 - k.lane_id])  # error: race


@kernel(warps=1)
def a_lane_that_read_a_word_vouches_for_no_other(k: Builder) -> None:
    words, value, arm = k.shared("words", u32, (32,)), k.var("value", 0, u32), 4
    arm = 32  # wrong 2
    k.mem.store(words[k.lane_id], 1)
    k.sync_warp()
    with k.if_(k.lane_id < arm):
        k.mem.load(value, words[0])  # error 1 2: race
        k.sync_warp(0b1111)  # ok 1 2
        k.mem.store(words[k.lane_id], 2)  # error 1 2: race


@kernel(warps=1)
def lanes_of_a_branch_did_not_meet_before_it(k: Builder) -> None:
    words, value, shift = k.shared("words", u32, (64,)), k.var("value", 0, u32), 0
    shift = 1  # wrong
    k.mem.store(words[k.lane_id], 1)  # error: race
    with k.if_(k.lane_id < 4):
        k.mem.load(value, words[k.lane_id ^ shift])  # error: race


@kernel(warps=1)
def a_part_that_gets_the_component_of_another(k: Builder) -> None:
    """Lanes of one arm meet each other; lanes of the other arm read what one of them has stored."""
    words, value, word = k.shared("words", u32, (32,)), k.var("value", 0, u32), 2
    word = 1  # wrong
    k.mem.store(words[k.lane_id], 0)
    k.sync_warp()
    with k.if_(k.lane_id < 2):
        with k.if_(k.lane_id.eq(0)):
            k.mem.store(words[0], 1)
        with k.else_():
            k.mem.store(words[1], 1)  # error: race
        k.sync_warp(0b11)
    with k.else_():
        with k.if_(k.lane_id.eq(7)):
            k.assign(value, 1)
        with k.if_(k.lane_id.eq(5)):
            k.mem.load(value, words[word])  # error: race


@kernel(warps=1)
def copies_of_other_lanes(k: Builder) -> None:
    """Each lane waits for its own."""
    source, value = k.tensor("source", u32, (32,)), k.var("value", 0, u32)
    words = k.shared("words", u32, (32,), align=16)
    k.cp_async.copy(words[k.lane_id], source[k.lane_id], size=4)  # error: race
    k.cp_async.wait_all()
    k.mem.load(value, words[k.lane_id])
    k.sync_warp()  # ok
    k.mem.load(value, words[k.lane_id ^ 1])  # error: race


@kernel(warps=1)
def a_copy_of_another_lane(k: Builder) -> None:
    """One lane stores a tile and waits for it, or all do; then all write the tile."""
    words, out = k.shared("words", u32, (32,), align=16), k.tensor("out", u32, (32,))
    k.mem.store(words[k.lane_id], 1)
    k.fence.proxy_async()
    with k.elected():
        k.bulk.store(out[:], words[:])  # error: race
        k.bulk.commit_group()
        k.bulk.wait_group(0)  # ok
    k.bulk.wait_group(0)  # wrong
    k.mem.store(words[k.lane_id], 2)  # error: race


@kernel(warps=1)
def behind_the_work_of_an_elected_lane(k: Builder) -> None:
    """Emitted code has a __syncwarp behind the region."""
    word, value, meets = k.shared("word", u32, (1,)), k.var("value", 0, u32), True
    meets = False  # wrong
    with k.elected(sync=meets):
        k.mem.store(word[0], 1)  # error: race
    k.mem.load(value, word[0])  # error: race


@kernel(warps=1)
def lanes_of_a_branch_have_waited_for_their_copies(k: Builder) -> None:
    source, shift = k.tensor("source", u32, (32,)), 0
    shift = 1  # wrong
    words = k.shared("words", u32, (32,), align=16)
    k.cp_async.copy(words[k.lane_id], source[k.lane_id], size=4)  # error 1 2: race
    k.cp_async.wait_all()  # ok 2
    with k.if_(k.lane_id < 4):
        k.mem.store(words[k.lane_id ^ shift], 1)  # error 1 2: race
    k.cp_async.wait_all()


@kernel(warps=2)
def a_lane_publishes_its_own_copies(k: Builder) -> None:
    source, bar, mine = k.tensor("source", u32, (32,)), k.mbarriers("bar"), 0
    words, value = k.shared("words", u32, (32,), align=16), k.var("value", 0, u32)
    mine = 1  # wrong 1 3
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_threads()
    with k.role("copies", 0):
        k.cp_async.copy(words[k.lane_id], source[k.lane_id], size=4)  # error 1 2 3: race by copies
        k.cp_async.wait_all()  # ok 2 3
        with k.if_(k.lane_id.eq(0)):
            k.cp_async.wait_all()  # ok 2
            k.mbarrier.arrive(bar)
        k.cp_async.wait_all()
    with k.role("reads", 1):
        k.mbarrier.wait(bar, 0)
        k.mem.load(value, words[mine])  # error 1 2 3: race by reads


@kernel(warps=2)
def lanes_learn_at_words_of_their_own(k: Builder) -> None:
    """Two lanes raise a flag each when they have met, and two lanes wait for one each."""
    flags, words = k.shared("flags", u32, (2,)), k.shared("words", u32, (2,))
    seen = k.var("seen", 0, dtype=u32)
    with k.one_thread():
        k.mem.store(flags[0], 0)
        k.mem.store(flags[1], 0)
    k.sync_threads()
    with k.role("tells", 0), k.if_(k.lane_id < 2):
        k.mem.store(words[k.lane_id], 1)  # error: race by tells
        k.sync_warp(3)  # ok
        k.mem.store(flags[k.lane_id], 1, sem="release", scope="cta")
    with k.role("learns", 1), k.if_(k.lane_id < 2):
        k.assign(seen, 0)
        with k.while_(seen < 1):
            k.mem.load(seen, flags[k.lane_id], sem="acquire", scope="cta")
        with k.if_(k.lane_id.eq(0)):
            k.mem.load(seen, words[1])  # error: race by learns


@kernel(warps=2)
def a_fence_that_lanes_execute_together_is_one_of_each(k: Builder) -> None:
    """Two lanes write, fence, and write on; one of them raises the flag, and what it has written
    before the fence is read."""
    flag, words, mine = k.shared("flag", u32, (1,)), k.shared("words", u32, (4,)), 0
    seen = k.var("seen", 0, dtype=u32)
    mine = 1  # wrong 1
    mine = 2  # wrong 2
    with k.one_thread():
        k.mem.store(flag[0], 0)
    k.sync_threads()
    with k.role("tells", 0), k.if_(k.lane_id < 2):
        k.mem.store(words[k.lane_id], 1)  # error 1: race by tells
        k.fence.memory("acq_rel", "cta")
        k.mem.store(words[k.lane_id + 2], 1)  # error 2: race by tells
        with k.if_(k.lane_id.eq(0)):
            k.mem.store(flag[0], 1, sem="relaxed", scope="cta")
    with k.role("learns", 1), k.elected():
        with k.while_(seen < 1):
            k.mem.load(seen, flag[0], sem="acquire", scope="cta")
        k.mem.load(seen, words[mine])  # error 1 2: race by learns


# right=bounded
@kernel(warps=1)
def the_lane_that_counts_last_reads_what_others_have_stored(k: Builder) -> None:
    """Lanes count by one instruction; which of them is the last one is not known."""
    count, words = k.shared("count", u32, (1,)), k.shared("words", u32, (32,))
    value, old, last = k.var("value", 0, dtype=u32), k.var("old", 0, dtype=u32), 31
    sem: AtomicSem = "acq_rel"
    sem = "release"  # wrong 1
    sem = "acquire"  # wrong 2
    last = 30  # wrong 3
    with k.one_thread():
        k.mem.store(count[0], 0)
    k.sync_threads()
    k.mem.store(words[k.lane_id], k.lane_id)  # error 1 2 3: race
    k.mem.atomic(count[0], "add", 1, result=old, sem=sem, scope="cta")
    with k.if_(old.eq(last)):
        for lane in range(32):
            k.mem.load(value, words[lane])  # error 1 2 3: race


@kernel(warps=1)
def notes_of_lanes_in_a_branch(k: Builder) -> None:
    """Lanes that find something note it; then every lane reads what all of them noted, with no
    `__syncwarp` behind the loop (ggml-org/llama.cpp#28475, `mmq_ids_helper`)."""
    notes, value = k.shared("notes", s32, (3, 32)), k.var("value", 0)
    k.mem.store(notes[0, k.lane_id], -1)
    k.sync_warp()
    with k.loop(3) as token, k.if_(((k.lane_id + token) % 3).eq(0), sync=False):
        k.mem.store(notes[0, k.lane_id], token)  # error: race
    k.sync_warp()  # ok
    k.mem.load(value, notes[0, 31 - k.lane_id])  # error: race


@kernel(warps=1)
def lanes_of_a_loop_that_breaks(k: Builder) -> None:
    """Lanes note something after as many turns as their number says, and read another one's."""
    notes, value, sync = k.shared("notes", s32, (32,)), k.var("value", 0), True
    sync = False  # wrong
    with k.loop(32, sync=sync) as i, k.if_(i.eq(k.lane_id), sync=False):
        k.mem.store(notes[k.lane_id], i)  # error: race
        k.break_()
    k.mem.load(value, notes[31 - k.lane_id])  # error: race


@kernel(warps=1)
def lanes_of_a_loop_that_repeats(k: Builder) -> None:
    notes, value, sync = k.shared("notes", s32, (32,)), k.var("value", 0), True
    turn = k.var("turn", 0)
    sync = False  # wrong
    with k.while_(turn <= k.lane_id, sync=sync):
        k.mem.store(notes[k.lane_id], turn)  # error: race
        turn += 1
    k.mem.load(value, notes[31 - k.lane_id])  # error: race


@kernel(warps=1)
def sides_of_a_branch(k: Builder) -> None:
    words, value, word = k.shared("words", s32, (2,)), k.var("value", 0), 1
    word = 0  # wrong
    with k.elected():
        k.mem.store(words[0], 0)
        k.mem.store(words[1], 0)
    with k.if_(k.lane_id < 16), k.if_(k.lane_id.eq(0)):
        k.mem.store(words[0], 1)  # error: race
    with k.else_():
        k.mem.load(value, words[word])  # error: race


@kernel(warps=2)
def each_lane_publishes_its_own(k: Builder) -> None:
    """Two lanes write a word each and arrive at a barrier each; the reader waits for one."""
    words, value, bars = k.shared("words", s32, (2,)), k.var("value", 0), k.mbarriers("bars", 2)
    with k.one_thread():
        k.mbarrier.init(bars[0], 1)
        k.mbarrier.init(bars[1], 1)
    k.sync_threads()
    with k.role("writer", 0), k.if_(k.lane_id < 2):
        k.mem.store(words[k.lane_id], 1)  # error: race by writer
        k.mbarrier.arrive(bars[k.lane_id])
    with k.role("reader", 1):
        k.mbarrier.wait(bars[0], 0)
        k.mbarrier.wait(bars[1], 0)  # ok
        with k.if_(k.lane_id < 2):
            k.mem.load(value, words[k.lane_id])  # error: race by reader


@kernel(warps=2)
def what_a_lane_knows_of_those_it_came_with(k: Builder) -> None:
    """A lane that parts twice from the others does not publish what they have done in between."""
    words, value, bars = k.shared("words", s32, (32,)), k.var("value", 0), k.mbarriers("bars", 3)
    with k.one_thread():
        for number in range(3):
            k.mbarrier.init(bars[number], 1 + (number == 0))
    k.sync_threads()
    with k.role("writer", 0):
        with k.if_(k.lane_id < 3):
            k.mbarrier.arrive(bars[k.lane_id])
        with k.if_(k.lane_id < 3):
            k.mem.store(words[k.lane_id], 1)  # error: race by writer
            k.sync_warp(0b111)  # ok
            with k.if_(k.lane_id.eq(0)):
                k.mbarrier.arrive(bars[0])
    with k.role("reader", 1):
        k.mbarrier.wait(bars[0], 0)
        k.mem.load(value, words[2])  # error: race by reader


@kernel(warps=3)
def every_lane_waits_for_a_barrier_of_its_own(k: Builder) -> None:
    """Each of two producers fills a word; a consumer's lanes wait for one barrier each."""
    words, bars, lanes, parity = k.shared("words", u32, (2,)), k.mbarriers("bars", 2), 2, 0
    lanes = 1  # wrong 1
    parity = 1  # wrong 2
    with k.role("consumer", 0), k.if_(k.lane_id < 2):
        k.mbarrier.init(bars[k.lane_id], 1)
    k.sync_threads()
    with k.role("first", 1), k.elected():
        k.mem.store(words[0], 1)  # error 2: race by first
        k.mbarrier.arrive(bars[0])
    with k.role("second", 2), k.elected():
        k.mem.store(words[1], 1)  # error 1 2: race by second
        k.mbarrier.arrive(bars[1])
    with k.role("consumer", 0):
        with k.if_(k.lane_id < lanes):
            k.mbarrier.wait(bars[k.lane_id], parity)
        with k.one_thread(0):
            value = k.var("value")
            k.mem.load(value, words[0])  # error 2: race by consumer
            k.mem.load(value, words[1])  # error 1 2: race by consumer


@kernel(warps=2)
def a_lane_for_which_nothing_arrives(k: Builder) -> None:
    bars = k.mbarriers("bars", 2)
    with k.one_thread():
        k.mbarrier.init(bars[0], 1)
        k.mbarrier.init(bars[1], 1)
    k.sync_threads()
    with k.role("producer", 0), k.one_thread(0):
        k.mbarrier.arrive(bars[0])
        k.mbarrier.arrive(bars[1])  # ok
    with k.role("consumer", 1), k.if_(k.lane_id < 2):
        k.mbarrier.wait(bars[k.lane_id], 0)  # error: deadlock


@kernel(warps=2)
def halves_of_a_warp_at_one_barrier(k: Builder) -> None:
    """A warp has arrived when all of its threads have, wherever they are (E2)."""
    words, value, other, aligned = k.shared("words", s32, (32,)), k.var("value", 0), 1, False
    other = 2  # wrong 1
    aligned = True  # wrong 2
    with k.role("split", 0):
        with k.if_(k.lane_id < 16):
            k.mem.store(words[k.lane_id], 1)
            k.bar.sync(1, 64, aligned=aligned)  # error 1: deadlock, error 2: participation
        with k.else_():
            k.mem.store(words[k.lane_id], 2)
            k.bar.sync(other, 64, aligned=aligned)  # error 1: deadlock
    with k.role("whole", 1):
        k.bar.sync(1, 64)  # error 1: deadlock
        k.mem.load(value, words[k.lane_id])


@kernel(warps=2)
def halves_of_a_warp_at_the_cluster_barrier(k: Builder) -> None:
    """They come to it at two places, and count as one warp."""
    k.launch(warps=2, grid=2, cluster=2)
    with k.role("split", 0):
        with k.if_(k.lane_id < 16):
            k.cluster.arrive(aligned=False)
            k.cluster.wait(aligned=False)
        with k.else_():
            k.cluster.arrive(aligned=False)
            k.cluster.wait(aligned=False)
    with k.role("whole", 1):
        k.cluster.sync()
        k.bar.sync(1, 64)  # wrong, error: deadlock


@kernel(warps=2)
def one_side_of_a_branch_waits_for_the_other(k: Builder) -> None:
    bars, words, value = k.mbarriers("bars"), k.shared("words", s32, (1,)), k.var("value", 0)
    with k.one_thread():
        k.mbarrier.init(bars, 1)
        k.mem.store(words[0], 0)
    k.sync_threads()
    with k.role("both", 0):
        with k.if_(k.lane_id > 0):
            k.mbarrier.wait(bars, 0)  # error: deadlock by both
            k.mem.load(value, words[0])
        with k.else_():
            k.mem.store(words[0], 1)
            k.mbarrier.arrive(bars)  # ok


@kernel(warps=1)
def lanes_part_among_those_that_have_parted(k: Builder) -> None:
    bar = k.mbarriers("bar", 1)
    with k.one_thread():
        k.mbarrier.init(bar[0], 1)
    k.sync_threads()
    with k.elected():
        k.mbarrier.arrive(bar[0])  # ok
    with k.if_(k.lane_id < 2), k.if_(k.lane_id < 1):
        k.mbarrier.wait(bar[0], 0)  # error: deadlock


@kernel(warps=2)
def a_store_of_another_lane(k: Builder) -> None:
    """Lanes 0 and 3 store a tile each; one of them waits and hands tile 1 back."""
    tiles, out = k.shared("tiles", u32, (2, 32)), k.tensor("out", u32, (2, 32))
    done, waits = k.mbarriers("done"), 3
    waits = 0  # wrong
    with k.one_thread():
        k.mbarrier.init(done, 1)
    with k.role("filler", 1):
        k.mem.store(tiles[0, k.lane_id], 1)
        k.mem.store(tiles[1, k.lane_id], 1)
        k.fence.proxy_async("shared::cta")
    k.sync_threads()
    with k.role("storer", 0):
        with k.if_(k.lane_id.eq(0)):
            k.bulk.store(out[0], tiles[0])
            k.bulk.commit_group()
        with k.if_(k.lane_id.eq(3)):
            k.bulk.store(out[1], tiles[1])  # error: race by storer
            k.bulk.commit_group()
        with k.if_(k.lane_id.eq(waits)):
            k.bulk.wait_group(0)
            k.mbarrier.arrive(done)
        for lane in (0, 3):
            with k.if_(k.lane_id.eq(lane)):
                k.bulk.wait_group(0)
    with k.role("filler", 1):
        k.mbarrier.wait(done, 0)
        k.mem.store(tiles[1, k.lane_id], 2)  # error: race by filler


@kernel(warps=2)
def an_arrival_waits_for_the_copies_of_its_lane(k: Builder) -> None:
    """And not for those that other lanes made with the same instruction (C6)."""
    source, bar, lanes, mine = k.tensor("source", u32, (32,)), k.mbarriers("bar"), 32, 31
    words, value = k.shared("words", u32, (32,), align=16), k.var("value", 0, u32)
    lanes = 1  # wrong
    with k.one_thread():
        k.mbarrier.init(bar, lanes)
    k.sync_threads()
    with k.role("copies", 0):
        k.cp_async.copy(words[k.lane_id], source[k.lane_id], size=4)  # error: race by copies
        with k.if_(k.lane_id < lanes):
            k.cp_async.mbarrier_arrive(bar, noinc=True)
        k.cp_async.wait_all()
    with k.role("reads", 1):
        k.mbarrier.wait(bar, 0)
        k.mem.load(value, words[0])
        k.mem.load(value, words[mine])  # error: race by reads


@kernel(warps=1)
def copies_of_lanes_to_one_place(k: Builder) -> None:
    """Each lane copies four words, so many quarters of them behind those of the lane before."""
    source, stride = k.tensor("source", u32, (32, 4)), 4
    words, value = k.shared("words", u32, (128,), align=16), k.var("value", 0, u32)
    stride = 0  # wrong 1
    stride = 1  # wrong 2
    stride = 3  # wrong 3
    into = words[ds(k.lane_id * stride, 4)]
    k.cp_async.copy(into, source[k.lane_id], size=4)  # error 1 2 3: race
    k.cp_async.wait_all()
    k.sync_warp()
    k.mem.load(value, words[k.lane_id])


@kernel(warps=1)
def a_cta_has_started_if_one_of_its_lanes_has(k: Builder) -> None:
    """A lane of CTA 1 says that it runs, one of CTA 0 waits for that; another lane stores there."""
    k.launch(grid=2, cluster=2)
    flag, words = k.tensor("flag", u32, (1,)), k.shared("words", u32, (32,))
    seen = k.var("seen", 0, dtype=u32)
    with k.if_(k.cluster_rank.eq(1)), k.if_(k.lane_id.eq(0), sync=False):
        k.mem.store(flag[0], 1, sem="release", scope="cluster")
    with k.else_():
        with k.if_(k.lane_id.eq(0), sync=False):
            with k.while_(seen.eq(0), sync=False):
                k.mem.load(seen, flag[0], sem="acquire", scope="cluster")
            k.mem.store(words[0].at(1), 5)
        k.sync_warp()  # ok
        with k.if_(k.lane_id.eq(1), sync=False):
            k.mem.store(words[k.lane_id].at(1), 5)  # error: peer-start
    k.cluster.sync()


@kernel(warps=2)
def lanes_tell_one_by_one_that_a_barrier_is_used_no_more(k: Builder) -> None:
    """Two lanes arrive together; then each of them, or one, tells who ends the barrier (A6)."""
    barrier, told = k.mbarriers("barrier"), k.mbarriers("told")
    with k.one_thread():
        k.mbarrier.init(barrier, 2)
        k.mbarrier.init(told, 2)  # ok
        k.mbarrier.init(told, 1)  # wrong
    k.sync_threads()
    with k.role("users", 0), k.if_(k.lane_id < 2, sync=False):
        k.mbarrier.arrive(barrier)  # error: barrier-lifetime
        with k.if_(k.lane_id.eq(0), sync=False):
            k.mbarrier.arrive(told)
        with k.if_(k.lane_id.eq(1), sync=False):
            k.mbarrier.arrive(told)  # ok
    with k.role("ends", 1), k.elected():
        k.mbarrier.wait(told, 0)
        k.mbarrier.inval(barrier)  # error: barrier-lifetime


@kernel(warps=1)
def lanes_tell_a_peer_one_by_one(k: Builder) -> None:
    """Two lanes store to a peer, which ends when each of them, or one, has told it (D9)."""
    k.launch(grid=2, cluster=2)
    told, words = k.mbarriers("told"), k.shared("words", u32, (2,))
    with k.one_thread():
        k.mbarrier.init(told, 2)  # ok
        k.mbarrier.init(told, 1)  # wrong
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(0)), k.if_(k.lane_id < 2, sync=False):
        k.mem.store(words[k.lane_id].at(1), 5)  # error: peer-exit
        with k.if_(k.lane_id.eq(0), sync=False):
            k.mbarrier.arrive(told.at(1), scope="cluster")
        with k.if_(k.lane_id.eq(1), sync=False):
            k.mbarrier.arrive(told.at(1), scope="cluster")  # ok
    with k.else_():
        k.mbarrier.wait(told, 0, scope="cluster")


@kernel(warps=2)
def the_other_half_of_a_warp_exits(k: Builder) -> None:
    with k.role("split", 0):
        with k.if_(k.lane_id < 16):
            k.bar.sync(1, 64, aligned=False)  # error: deadlock
        with k.else_():
            k.bar.sync(2, 64, aligned=False)  # wrong, error: deadlock
            k.exit()
    with k.role("whole", 1):
        k.bar.sync(1, 64)  # error: deadlock


@kernel(warps=1)
def lanes_that_come_one_by_one_meet(k: Builder) -> None:
    """Lanes that went on meet the one that waits, behind what it waits for; what a lane does after
    the meeting is not known to others."""
    bar, words, reads = k.mbarriers("bar"), k.shared("words", u32, (32,)), 1
    value = k.var("value", 0, dtype=u32)
    reads = 2  # wrong 2
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.mem.store(words[k.lane_id], 0)
    k.sync_threads()
    with k.if_(k.lane_id < 4):
        with k.if_(k.lane_id.eq(1)):
            k.mbarrier.wait(bar, 0)  # error: deadlock
            k.mem.store(words[1], 1)
        k.sync_warp(0xF)  # wrong
        with k.if_(k.lane_id.eq(0)):
            k.mbarrier.arrive(bar)
        k.sync_warp(0xF)
        with k.if_(k.lane_id.eq(3)):
            k.mem.load(value, words[reads])  # error 2: race
        with k.if_(k.lane_id.eq(2)):
            k.mem.store(words[2], 1)  # error 2: race


@kernel(warps=1)
def a_vote_waits_for_lanes_and_orders_nothing(k: Builder) -> None:
    bar, words, reads = k.mbarriers("bar"), k.shared("words", u32, (32,)), 9
    value = k.var("value", 0, dtype=u32)
    reads = 1  # wrong
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.mem.store(words[k.lane_id], 0)
    k.sync_threads()
    with k.if_(k.lane_id < 4):
        with k.if_(k.lane_id.eq(1)):
            k.mbarrier.wait(bar, 0)
            k.mem.store(words[1], 1)  # error: race
        with k.if_(k.lane_id.eq(0)):
            k.mbarrier.arrive(bar)
        k.warp.ballot(value, k.lane_id.eq(2), mask=0xF)
        with k.if_(k.lane_id.eq(3)):
            k.mem.load(value, words[reads])  # error: race


@kernel(warps=1)
def sides_of_a_branch_meet_at_different_places(k: Builder) -> None:
    """Each half of the warp writes, meets the other one in its own side, and reads from it."""
    words, value, first, second = k.shared("words", u32, (32,)), k.var("value", 0, u32), -1, -1
    first = 0xFFFF  # wrong 1
    second = 0xFFFF0000  # wrong 1 2
    with k.if_(k.lane_id < 16):
        k.mem.store(words[k.lane_id], 1)  # error 1: race
        k.sync_warp(first & 0xFFFFFFFF)  # error 2: participation
        k.mem.load(value, words[31 - k.lane_id])  # error 1: race
    with k.else_():
        k.mem.store(words[k.lane_id], 2)  # error 1: race
        k.sync_warp(second & 0xFFFFFFFF)
        k.mem.load(value, words[31 - k.lane_id])  # error 1: race


@kernel(warps=1)
def lanes_of_a_tile_meet(k: Builder) -> None:
    """Also where all tiles come to it together, each with a mask of its own."""
    words, value, other = k.shared("words", u32, (32,)), k.var("value", 0, dtype=u32), 7
    other = 8  # wrong
    k.mem.store(words[k.lane_id], k.lane_id)  # error: race
    k.sync_warp(0xFF << (k.lane_id // 8 * 8))
    k.mem.load(value, words[k.lane_id ^ other])  # error: race
    k.sync_warp()
    k.mem.store(words[k.lane_id], 0)


@kernel(warps=1)
def lanes_of_a_tile_meet_on_sides_of_a_branch(k: Builder) -> None:
    words, value, other = k.shared("words", u32, (32,)), k.var("value", 0, dtype=u32), 15
    other = 16  # wrong
    mask = 0xFFFF << (k.lane_id // 16 * 16)
    k.mem.store(words[k.lane_id], k.lane_id)  # error: race
    with k.if_(k.lane_id < 16):
        k.sync_warp(mask)
        k.mem.load(value, words[k.lane_id ^ other])  # error: race
    with k.else_():
        k.sync_warp(mask)
        k.mem.load(value, words[k.lane_id ^ other])  # error: race
    k.sync_warp()
    k.mem.store(words[k.lane_id], 0)


@kernel(warps=1)
def a_lane_is_among_those_that_it_names(k: Builder) -> None:
    flipped = 0
    flipped = 16  # wrong
    k.sync_warp(0xFFFF << (k.lane_id // 16 * 16 ^ flipped))  # error: participation


@kernel(warps=1)
def a_meeting_that_others_do_not_come_to(k: Builder) -> None:
    """Lanes that have ended are not waited for."""
    with k.if_(k.lane_id < 16):
        k.sync_warp()  # error: participation
    with k.else_():
        k.exit()  # ok


@kernel(warps=1)
def a_meeting_of_no_lanes(k: Builder) -> None:
    """On a side of a branch that no lane comes to, or one."""
    lanes = 2
    lanes = 1  # wrong
    with k.if_(k.lane_id < 2), k.if_(k.lane_id >= lanes):
        k.sync_warp(0)  # error: participation


@kernel(warps=2)
def lanes_that_went_on_meet_all_others(k: Builder) -> None:
    """A lane waits for what another lane does behind its branch; then all meet at a barrier."""
    bar, value = k.mbarriers("bar"), k.var("value", 0, dtype=u32)
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_threads()
    with k.role("lanes", 1):
        with k.if_(k.lane_id < 4):
            with k.if_(k.lane_id.eq(1)):
                k.mbarrier.wait(bar, 0)  # error: deadlock
            with k.if_(k.lane_id.eq(0)):
                k.mbarrier.arrive(bar)  # ok
            with k.if_(k.lane_id.eq(1)):
                k.mbarrier.wait(bar, 0)
        k.warp.ballot(value, k.lane_id.eq(2))
    k.sync_threads()  # error: deadlock


@kernel(warps=1)
def lanes_of_one_loop_are_in_turns_of_their_own(k: Builder) -> None:
    """Two lanes hand a turn of a loop back and forth, each in its own branch of it."""
    there, back = k.mbarriers("there"), k.mbarriers("back")
    with k.one_thread():
        k.mbarrier.init(there, 1)
        k.mbarrier.init(back, 1)
    k.sync_threads()
    with k.if_(k.lane_id < 4), k.loop(3) as i:
        with k.if_(k.lane_id.eq(1)):
            k.mbarrier.wait(there, i & 1)  # error: deadlock
            k.mbarrier.arrive(back)  # ok
        with k.if_(k.lane_id.eq(0)):
            k.mbarrier.arrive(there)
            k.mbarrier.wait(back, i & 1)  # error: deadlock


@kernel(warps=1)
def a_lane_goes_on_behind_a_branch_where_another_waits(k: Builder) -> None:
    """One of two lanes arrives twice, the other waits for that in between."""
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 2)
    k.sync_threads()
    with k.if_(k.lane_id < 2):
        with k.if_(k.lane_id.eq(1)):
            k.mbarrier.arrive(bar)  # ok
        with k.else_():
            k.mbarrier.wait(bar, 0)  # error: deadlock
        k.mbarrier.arrive(bar)


@kernel(warps=1)
def lanes_that_do_not_enter_a_branch_go_on(k: Builder) -> None:
    """A lane waits for what the others do behind its branch; then it reads what one has stored."""
    bar, words, reads = k.mbarriers("bar"), k.shared("words", u32, (32,)), 0
    value = k.var("value", 0, dtype=u32)
    reads = 4  # wrong 2
    with k.one_thread():
        k.mbarrier.init(bar, 3)  # ok
        k.mbarrier.init(bar, 4)  # wrong
    k.sync_threads()
    with k.if_(k.lane_id < 4):
        with k.if_(k.lane_id.eq(1)):
            k.mbarrier.wait(bar, 0)  # error: deadlock
            k.mem.load(value, words[reads])  # error 2: race
        with k.if_(k.lane_id.ne(1)):
            k.mem.store(words[k.lane_id], 1)
        k.mbarrier.arrive(bar)
        with k.if_(k.lane_id.eq(3)):
            k.mem.store(words[4], 1)  # error 2: race


@kernel(warps=1)
def lanes_wait_where_all_of_them_meet_and_nowhere_else(k: Builder) -> None:
    """The lane that waits is two branches deep."""
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 3)
    k.sync_threads()
    with k.if_(k.lane_id < 4):
        with k.if_(k.lane_id < 2), k.if_(k.lane_id.eq(1)):
            k.mbarrier.wait(bar, 0)  # error: deadlock
        k.mbarrier.arrive(bar)  # ok
    k.mbarrier.arrive(bar)  # wrong
