"""Rules that only the verifier and the builder report, before anything runs."""

from __future__ import annotations

from tilesim.findings.rule import MBARRIER, RuleDoc, source, swap

_OPERAND = source(
    """
    @ts.kernel(warps=1)
    def wide_box(k):
        A = k.tensor("A", ts.bf16, (512, 64))
        A_map = k.tensor_map(A, (300, 64), swizzle=128)
        with k.one_thread():
            k.tma.prefetch(A_map, (0, 0))
    """
)

_ROLE = source(
    """
    @ts.kernel(warps=4)
    def overlap(k):
        with k.role("consumer", [0, 1, 1]):
            k.sync_warp()
    """
)

_REGION = source(
    """
    @ts.kernel(warps=2)
    def open_region(k):
        ready = k.mbarriers("ready")
        with k.one_thread():
            k.mbarrier.init(ready, 32)
        k.sync_threads()
        k.role("producer", 0)
        k.mbarrier.arrive(ready)
    """
)

_LAUNCH = source(
    """
    @ts.kernel(warps=40)
    def many(k):
        k.sync_threads()
    """
)

_TARGET = source(
    """
    @ts.kernel(target="sm_90", warps=4)
    def multiply(k):
        k.wgmma.fence()
    """
)

_NAME = source(
    """
    @ts.kernel(warps=1)
    def twice(k):
        k.shared("x", ts.s32, (32,))
        k.shared("x", ts.s32, (32,))
        k.sync_threads()
    """
)

DOCS = (
    RuleDoc(
        "operand",
        "An operand or a declaration is outside what the instruction or the hardware accepts.",
        "Reported before the kernel runs: shapes, strides, alignments, copy sizes, types, and "
        "handles that belong to another kernel. Box sizes are 1..256 elements, in rows of 16-byte "
        "multiples that fit the swizzle; barrier counts are 1..2^20-1.",
        ("cuTensorMapEncodeTiled (driver API)", MBARRIER),
        ("A1", "A5", "B6", "B15", "B16", "B18", "F9"),
        "The message names the limit; the line is where the operand was written.",
        _OPERAND,
        swap(_OPERAND, ("(300, 64)", "(256, 64)")),
    ),
    RuleDoc(
        "role",
        "A role names warps that do not exist, that are not in the enclosing role, or twice.",
        "Roles are regions for sets of warps of the CTA. A warp that is named twice is almost "
        "always an off-by-one between two ranges.",
        ("Programming Model: cooperative thread arrays",),
        ("E1",),
        "Name every warp of a role once, and only warps that reach it.",
        _ROLE,
        swap(_ROLE, ("[0, 1, 1]", "[0, 1]")),
    ),
    RuleDoc(
        "region",
        "A region was opened without a `with` statement, or the kernel has no instruction at all.",
        "`k.role(...)`, `k.if_(...)`, `k.loop(...)`, `k.elected()` and the like record what their "
        "`with` block contains. As a statement of their own they record nothing, and every warp "
        "would execute what was meant for the region.",
        ("Programming Model: cooperative thread arrays",),
        (),
        "Write `with k.role(...):` and indent what belongs to the region.",
        _REGION,
        swap(_REGION, ('    k.role("producer", 0)\n    k.mbarrier.arrive(ready)',
                       '    with k.role("producer", 0):\n        k.mbarrier.arrive(ready)')),
    ),
    RuleDoc(
        "launch",
        "The target cannot launch a kernel of this shape.",
        "Warps per CTA, grid, cluster, registers per thread and shared memory have limits per "
        "target; a grid consists of whole clusters.",
        ("Compute capabilities (CUDA programming guide)",),
        ("D15", "I2"),
        "Lower what the message names.",
        _LAUNCH,
        swap(_LAUNCH, ("warps=40", "warps=32")),
    ),
    RuleDoc(
        "target",
        "The target does not have this instruction.",
        "`wgmma` and `setmaxnreg` need `sm_90a`, not `sm_90`; `tcgen05` exists on the families of "
        "sm_100, sm_103 and sm_110, not on sm_120.",
        ("Target ISA notes of each instruction",),
        ("G1",),
        "Choose a target that has it; the message lists them.",
        _TARGET,
        swap(_TARGET, ('"sm_90"', '"sm_90a"')),
    ),
    RuleDoc(
        "name",
        "Two declarations have the same name, or a name is not an identifier.",
        "Names identify tensors, barriers and variables in reports and in the text form.",
        ("Identifiers",),
        (),
        "Give each declaration a name of its own.",
        _NAME,
        swap(_NAME, ('    k.shared("x", ts.s32, (32,))\n    k.shared("x"',
                     '    k.shared("x", ts.s32, (32,))\n    k.shared("y"')),
    ),
)  # fmt: skip
