"""Types of elements and registers, and what operations on values of them give."""
