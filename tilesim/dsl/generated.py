"""The namespaces whose methods are made from definitions; the stub says what they take.

A namespace with methods that are written by hand derives from the generated one.
"""

from tilesim.dsl.methods import Methods, base

BuilderMethods = Methods
BulkMethods = base("bulk")
ClusterMethods = base("cluster")
CpAsyncMethods = base("cp_async")
FenceMethods = base("fence")
GriddepMethods = base("griddep")
MatrixMethods = base("matrix")
MbarrierMethods = base("mbarrier")
MemMethods = base("mem")
MultimemMethods = base("multimem")
TensormapMethods = base("tensormap")
TileMethods = base("tile")
TimeMethods = base("time")
WarpMethods = base("warp")
WgmmaMethods = base("wgmma")
