"""The GPU backend: emission, compilation without a GPU, and runs where there is one."""
