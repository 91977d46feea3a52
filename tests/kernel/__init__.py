"""Tests of the proof kernel (`tilesim/proof`): pairs of programs, tests, and commands.

A wrong program and its nearest right twin are a pair. Files of pairs, and of other programs:

    pairs                   the list of all pairs
    programs                for each rule of the kernel a pair; what a pair is (`Pair`)
    programs_ptx            pairs of which one is wrong at the level `ptx` only
    programs_edges          pairs of boundary cases, which mutants of the kernel have shown
    programs_numbers        pairs of numbers in memory that decide: of vectors, matrices, tensors
    programs_data           pairs of unknown data: loads that are stored, stores of equal values
    programs_counters       pairs of words that are waited for
    programs_classes        pairs of which one is wrong in a cluster that is not executed
    programs_repetitions    pairs of loops, of which later iterations of one are wrong
    changed_iterations      random loops of two warps of which later iterations differ
    small_regions           random small programs in which data decides about accesses
    litmus.json             what the kernel says of the litmus programs
    harmless.json           mutants of the kernel that change no answer, and why

Tests, which pytest runs:

    test_rules              each pair: the wrong program is refused, its twin is certified
    test_litmus             the litmus programs, at both levels; as a command: writes litmus.json
    test_not_covered        for each row of docs/trust.md on what is not covered a program
    test_certificate        certificates: written, read, altered, cut, huge and hostile
    test_repetitions        iterations that a certificate leaves out
    test_parameters         certificates for every value of a parameter
    test_regions            regions of PTX kernels in which data decides what is executed
    test_counters           words that are waited for
    test_memory_model       strong accesses, compared with PTX's axioms
    test_elections          `elect.sync`: what is certified is so for each choice of lanes
    test_launch_control     `clusterlaunchcontrol`: what is certified is right for each answer
    test_spins              loops that poll an mbarrier
    test_written            which tensors a program may write by addresses
    test_register_moves     moves to registers of a `wgmma` behind its fence
    test_arithmetic         integers that instructions of PTX compute
    test_many               operands of all clusters of a class, computed at once, and of each
    test_memory             which accesses of a memory are compared, by its bytes and by a list
    test_limits             what the kernel does at most
    test_program_mutants    what is changed in programs, and which contradictions are seen
    test_contract           what the kernel imports, its size, the names of its rules

Commands, ``python -m tests.kernel.NAME``. Each ends with 1 if the kernel certifies a wrong program,
but for `mutants`, which prints which share of them the tests find:

    campaign                random small programs, compared with an exhaustive reference
    random_regions          random PTX kernels whose data is unknown, compared with known data
    program_mutants         programs that tests check, with one change: check and kernel compared
    random_counters         random words that are waited for, compared with all interleavings
    random_memory_model     random strong accesses, compared with PTX's axioms
    random_elections        random `elect.sync`, compared with each choice of lanes
    random_launch_control   random requests of clusters, compared with an exhaustive reference
    random_loops            random loops with iterations left out, compared with whole ones
    random_parameters       random parameters: claims of all values, compared with single ones
    random_equal_stores     random stores to one place, compared with an interpreter
    random_edits            programs of litmus rows and pairs, edited at random, and a check of them
    corpus                  all programs that the tests check, or the gallery, compared with `check`
    finder_mutants          mutants of the code that finds proofs
    mutants                 mutants of the kernel
"""
