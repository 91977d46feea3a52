"""SM100 matmul, from a single tile to a persistent, warp-specialised kernel with cluster launch
control. Each module changes one thing and says why.
"""
