"""Kernels that hang: each is hung on a GPU, dumped, and what is said of the dump is compared with
the right answer: ``python -m tests.silicon.hangs``.

``answer.py`` says what an answer is; ``own.py``, ``emitted.py``, ``task.py`` and ``triton_task.py``
have the programs.
"""
