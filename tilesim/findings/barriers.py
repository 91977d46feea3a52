"""Rules of mbarriers: waits and arrivals, in which phase, with how many bytes."""

from __future__ import annotations

from tilesim.findings.rule import MBARRIER, MEMORY, PHASES, TX, RuleDoc, source, swap

_DEADLOCK = source(
    """
    @ts.kernel(warps=2)
    def handshake(k):
        x = k.shared("x", ts.s32, (1,))
        full, empty = k.mbarriers("full"), k.mbarriers("empty")
        with k.one_thread():
            k.mbarrier.init(full, 1)
            k.mbarrier.init(empty, 1)
        k.sync_threads()
        with k.role("producer", 0), k.elected():
            k.mbarrier.wait(empty, 0)  # blocks: phase 0 ends when the consumer has released
            k.mem.store(x[0], 1)
            k.mbarrier.arrive(full)
        with k.role("consumer", 1), k.elected():
            value = k.var("value")
            k.mbarrier.wait(full, 0)
            k.mem.load(value, x[0])
            k.mbarrier.arrive(empty)
    """
)

_OVER = source(
    """
    @ts.kernel(warps=1)
    def count(k):
        done = k.mbarriers("done")
        with k.one_thread():
            k.mbarrier.init(done, 1)
        k.sync_threads()
        with k.elected():
            k.mbarrier.arrive_expect_tx(done, 16)
            k.mbarrier.arrive(done)  # arrive.expect_tx has arrived already
            k.mbarrier.complete_tx(done, 16)
        k.mbarrier.wait(done, 0)
    """
)

_TX = source(
    """
    @ts.kernel(warps=1)
    def bytes_late(k):
        b = k.mbarriers("b")
        with k.one_thread():
            k.mbarrier.init(b, 1)
            k.mbarrier.complete_tx(b, 16)
            k.mbarrier.arrive(b)
            k.mbarrier.expect_tx(b, 16)  # nothing is left that could end the phase
            k.mbarrier.wait(b, 0)
    """
)

_ALIAS = source(
    """
    @ts.kernel(warps=2)
    def late_waiter(k):
        b, seen = k.mbarriers("b"), k.mbarriers("seen")
        with k.one_thread():
            k.mbarrier.init(b, 1)
            k.mbarrier.init(seen, 1)
        k.sync_threads()
        with k.role("producer", 0), k.elected():
            k.mbarrier.arrive(b)
            k.mbarrier.wait(b, 0)
            k.mbarrier.arrive(b)  # phase 1 may end before the consumer has looked at phase 0
            k.mbarrier.wait(b, 1)
        with k.role("consumer", 1), k.elected():
            k.mbarrier.wait(b, 0)
            k.mbarrier.arrive(seen)
    """
)

_AMBIGUOUS = source(
    """
    @ts.kernel(warps=3)
    def two_rounds(k):
        x = k.shared("x", ts.s32, (1,))
        b = k.mbarriers("b")
        value = k.var("value")
        with k.one_thread():
            k.mbarrier.init(b, 3)
        k.sync_threads()
        with k.role("helper", 0):
            with k.elected():
                k.mbarrier.arrive(b)
            with k.loop(16):  # other work
                k.sync_warp()
            with k.elected():
                k.mbarrier.arrive(b)  # for round 1, but in round 0 it stands for the writer
        with k.role("writer", 1), k.elected():
            k.mem.store(x[0], 1)
            k.mbarrier.arrive(b)
            k.mbarrier.wait(b, 0)
            k.mbarrier.arrive(b)
        with k.role("reader", 2), k.elected():
            k.mbarrier.arrive(b)
            k.mbarrier.wait(b, 0)
            k.mem.load(value, x[0])
            k.mbarrier.arrive(b)
    """
)

_UNINITIALISED = source(
    """
    @ts.kernel(warps=2)
    def forgotten(k):
        first, second = k.mbarriers("first"), k.mbarriers("second")
        with k.one_thread():
            k.mbarrier.init(first, 1)
        k.sync_threads()
        with k.role("producer", 0), k.elected():
            k.mbarrier.arrive(second)
        with k.role("consumer", 1), k.elected():
            k.mbarrier.wait(second, 0)
    """
)

_LIFETIME = source(
    """
    @ts.kernel(warps=1)
    def reuse(k):
        b = k.mbarriers("b")
        with k.one_thread():
            k.mbarrier.init(b, 1)
            k.mbarrier.arrive(b)
            k.mbarrier.wait(b, 0)
            k.mbarrier.init(b, 1)  # still a live mbarrier
            k.mbarrier.arrive(b)
            k.mbarrier.wait(b, 0)
    """
)

_VISIBILITY = source(
    """
    @ts.kernel(warps=2)
    def hurried(k):
        b = k.mbarriers("b")
        with k.role("producer", 0), k.elected():
            k.mbarrier.init(b, 1)
            k.mbarrier.arrive(b)
        with k.role("consumer", 1):
            with k.loop(8):
                k.sync_warp()
            k.mbarrier.wait(b, 0)
    """
)

DOCS = (
    RuleDoc(
        "deadlock",
        "These warps are blocked, and nothing that can still execute releases them.",
        "No warp of the kernel can move and no asynchronous operation is pending; or some warps "
        "wait for arrivals that no other warp makes. The report names every waiter with its "
        "barrier, phase and parity, and the arrivals and bytes that are missing. It names what "
        "has arrived, what could still release the waiter, and what that waits for.\n\n"
        "Usual causes: a producer that starts with parity 0 (a new barrier is in phase 0: a wait "
        "with parity 1 passes, one with parity 0 blocks); an init count that differs from "
        "the arrivals of one phase (a full warp arrives 32 times, an elected lane once); more "
        "bytes expected than the copies complete; a role that leaves without its last arrival; "
        "`__syncthreads` inside a role.",
        (MBARRIER, PHASES),
        ("A8", "A9", "A12", "A21", "A22"),
        "Compare the parity of each waiter with the phase of its barrier. Compare the init count "
        "with the arrivals of one phase, and the expected bytes with the copied ones.",
        _DEADLOCK,
        swap(_DEADLOCK, ("wait(empty, 0)  # blocks: phase 0 ends when the consumer has released",
                         "wait(empty, 1)  # the phase before the first: passes at once")),
    ),
    RuleDoc(
        "over-arrival",
        "An arrival on an mbarrier that has no arrival pending in its phase is undefined; an H200 "
        "traps.",
        "Each phase takes exactly as many arrivals as the barrier was initialised with. One more "
        "finds the count at zero whenever bytes are still outstanding, or when several arrivals "
        "are made at once. The same mistake at another moment counts in the following phase: then "
        "it shows up as `phase-ambiguity`, `race` or `deadlock`.\n\n"
        "Usual causes: `arrive` executed by a whole warp where one lane was meant; an `arrive` "
        "beside an `arrive.expect_tx`, which arrives itself; an init count for one consumer "
        "although several release. A count of 0 or above 2^20-1 in `mbarrier.init` is reported "
        "under this rule, too.",
        (MBARRIER, "mbarrier.arrive"),
        ("A3", "A5", "A13", "A15", "A16"),
        "Initialise with the number of arrivals of one phase; elect a lane for a single arrival.",
        _OVER,
        swap(_OVER, ("init(done, 1)", "init(done, 2)")),
    ),
    RuleDoc(
        "tx-mismatch",
        "The bytes expected on an mbarrier and the bytes completed on it do not balance in the "
        "phase that was meant.",
        "A phase ends when no arrival is pending and the byte count is zero, and this is looked "
        "at when something arrives or completes. If all arrivals are made and bytes complete "
        "before they are expected, the text of PTX names no step that ends the phase. An H200 "
        "ends it at the expect. Simply expecting another number than is copied ends in "
        "`deadlock` (too many, or too few in one copy) or `race` (too few over several copies).",
        (TX, "mbarrier.expect_tx", "mbarrier.complete_tx"),
        ("A3", "A9", "A10", "A11", "A12", "U3"),
        "Use `mbarrier.arrive.expect_tx`, which expects and arrives in one step, with the full "
        "bytes of all copies of the phase (`map.box_bytes`, also at the tensor's edge).",
        _TX,
        swap(_TX, ("        k.mbarrier.arrive(b)\n", ""),
             ("expect_tx(b, 16)  # nothing is left that could end the phase",
              "arrive_expect_tx(b, 16)  # expects, then arrives")),
    ),
    RuleDoc(
        "phase-alias",
        "A wait sees only the parity of a phase; the barrier can be two or more phases away from "
        "the one that is meant.",
        "A parity tells the current phase from the preceding one, no more. If the barrier runs two "
        "phases ahead of a waiter, the waiter blocks for a phase that is over, or passes too "
        "early. Most schedules work; the check shows that others exist.\n\n"
        "Every waiter must observe every phase, or the next phase must need an arrival of the "
        "waiter. In a ring of stages, the *empty* barriers do that. A parity other than 0 or 1, "
        "and a token of an earlier phase, are reported under this rule as well.",
        (PHASES, "mbarrier.test_wait, mbarrier.try_wait"),
        ("A19", "A20", "A21", "A23"),
        "Let the barrier's next phase depend on an arrival that the waiter makes after its wait.",
        _ALIAS,
        swap(_ALIAS, ("        k.mbarrier.arrive(b)  # phase 1",
                      "        k.mbarrier.wait(seen, 0)\n"
                      "        k.mbarrier.arrive(b)  # phase 1"),
             ("may end before the consumer has looked at phase 0",
              "ends after the consumer has seen phase 0")),
    ),
    RuleDoc(
        "phase-ambiguity",
        "Which phase of the mbarrier this arrival or these bytes count for depends on timing.",
        "An arrival counts for the phase that is open when it is made, completed bytes for the one "
        "that is open when they land. If the phase may end in between, the count goes to one phase "
        "on one schedule and to another on the next: a barrier opens too early, or never.\n\n"
        "Usual causes: `arrive` for a phase with a copy in flight whose bytes were not expected "
        "before; two threads that each announce half of the bytes on a barrier with count 1; an "
        "arrival for the next phase by a thread that does not know that the current one is over. "
        "At strictness `ptx` every phase must also have been observed by a wait before anything "
        "arrives in the next one.",
        (PHASES, TX),
        ("A10", "A11", "A12", "A24", "U1"),
        "Expect the bytes in the arrival itself (`arrive.expect_tx`), one arrival per thread that "
        "announces bytes, and wait for a phase before arriving in the next.",
        _AMBIGUOUS,
        swap(_AMBIGUOUS, ("  # for round 1, but in round 0 it stands for the writer", ""),
             ("            k.sync_warp()\n        with k.elected():\n",
              "            k.sync_warp()\n        with k.elected():\n"
              "            k.mbarrier.wait(b, 0)\n")),
    ),
    RuleDoc(
        "uninitialised-barrier",
        "Only mbarrier.init may be applied to memory that is not an mbarrier yet.",
        "Shared memory has undefined contents at the start of a kernel: an arrive or a wait on a "
        "barrier that was not initialised is undefined. The finding also appears when the init "
        "exists but can come later than the use, on the schedule at hand: then it is a matter of "
        "missing synchronisation, see `init-visibility`.",
        (MBARRIER, "mbarrier.init"),
        ("A5", "A6", "A7"),
        "Initialise every barrier in one thread and put `__syncthreads` between that and any use.",
        _UNINITIALISED,
        swap(_UNINITIALISED, ("        k.mbarrier.init(first, 1)\n",
                              "        k.mbarrier.init(first, 1)\n"
                              "        k.mbarrier.init(second, 1)\n")),
    ),
    RuleDoc(
        "barrier-lifetime",
        "The bytes of a live mbarrier belong to it until mbarrier.inval, and are free after it.",
        "On a live mbarrier another `init` is undefined, and so is any plain load, store or copy "
        "of its bytes. After `inval` it must not be used. Both `inval` and the reuse of the "
        "bytes must be synchronised with the last use of every thread. The end of the CTA is an "
        "end of its barriers, too: by the text, arrivals of `tcgen05.commit` and "
        "`cp.async.mbarrier.arrive` must have been made by then.",
        (MBARRIER, "mbarrier.init", "mbarrier.inval"),
        ("A6", "A8"),
        "Initialise once; or synchronise, `mbarrier.inval`, synchronise, and initialise again. "
        "Before the CTA ends, wait for the phases of the last commits.",
        _LIFETIME,
        swap(_LIFETIME, ("        k.mbarrier.init(b, 1)  # still a live mbarrier\n",
                         "        k.mbarrier.inval(b)\n        k.mbarrier.init(b, 1)\n")),
    ),
    RuleDoc(
        "init-visibility",
        "mbarrier.init is an ordinary write, and nothing orders it before this use in another "
        "thread.",
        "Another warp may use the barrier only after synchronisation with the thread that "
        "initialised it: `__syncthreads` within the CTA. For other CTAs of a cluster, "
        "`fence.mbarrier_init.release.cluster` by the initialising thread and a cluster barrier. "
        "Without it kernels hang now and then: the wait reads what was in the memory before.",
        ("fence.mbarrier_init", MEMORY),
        ("A7", "D6", "U13"),
        "`__syncthreads` after the initialisation; for other CTAs the fence and a cluster barrier.",
        _VISIBILITY,
        swap(_VISIBILITY, ('    with k.role("producer", 0), k.elected():\n'
                           "        k.mbarrier.init(b, 1)\n",
                           "    with k.one_thread():\n"
                           "        k.mbarrier.init(b, 1)\n"
                           "    k.sync_threads()\n"
                           '    with k.role("producer", 0), k.elected():\n')),
    ),
)  # fmt: skip
