"""Protocols of kernels that ship in public libraries, each with the faults that get reported."""
