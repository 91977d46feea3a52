"""The namespaces whose methods are made from definitions; the stub says what they take.

A namespace with methods that are written by hand derives from the generated one.
"""

from tilesim.dsl.methods import Methods, base

BuilderMethods = Methods
FenceMethods = base("fence")
MatrixMethods = base("matrix")
MemMethods = base("mem")
MultimemMethods = base("multimem")
TensormapMethods = base("tensormap")
TimeMethods = base("time")
WarpMethods = base("warp")
