"""For which values of a parameter one run stands: `tilesim check --for-all`.

`free` has numbers that are not known, with which a kernel is built and compiled; `forms` finds
where they are in the machine's program, `rays` follows them through expressions, `follow` through
instructions, `trace` through a run.
"""
