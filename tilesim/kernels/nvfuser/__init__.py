"""Warp-specialised circular buffers with several asynchronous warps, after NVIDIA/Fuser #5076.

`printed` is the kernel as the pull request prints it, each of its faults selectable; the other
modules are what it was meant to become.
"""
