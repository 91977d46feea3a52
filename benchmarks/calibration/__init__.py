"""Microbenchmarks of an SM and of what SMs share, and what is fitted from them."""
