"""Kernels that hang: each is hung on a GPU, dumped, and what an autopsy says of the dump is compared
with the right answer. ``python -m tests.silicon.hangs``; ``answer.py`` says what an answer is,
``own.py``, ``emitted.py``, ``folder.py`` and ``triton.py`` have the programs.
"""
