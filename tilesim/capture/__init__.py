"""Programs that launch CUDA kernels, run on a machine without a GPU: what they would launch.

`run` starts a program against a stand-in for the CUDA runtime and driver (``stub/``, C, built on
first use). Every call of the program that matters is a question to a `Session`, which answers for
the GPU that it plays and writes each kernel with its launch to a `Folder`.
"""
