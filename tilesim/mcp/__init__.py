"""A server of the Model Context Protocol, by which coding agents check the kernels they write."""
