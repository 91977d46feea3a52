"""Machine code: what a cubin holds, its instructions, and the values that registers may have."""
