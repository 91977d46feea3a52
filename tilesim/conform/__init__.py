"""Is what hardware did an execution that the machine allows?

`order` has what the machine says must come before what, `recorded` when hardware did it, and
`compare` decides. The recording is made by `tilesim.gpu.conform`; everything here needs no GPU.
"""
