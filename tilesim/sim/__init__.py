"""The simulator: what there is while a kernel runs, and what is made of a run.

``machine`` executes, ``observers`` judge its events, ``affine`` makes one run stand for many, and
``schedulers`` choose further runs. The verdict is put together in `tilesim.checker`.
"""
