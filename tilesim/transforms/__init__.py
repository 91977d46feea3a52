"""Program transformations: fences that are missing, arrivals that can be fused."""

from tilesim.transforms.fuse_expect_arrive import fuse_expect_arrive
from tilesim.transforms.inject_proxy_fence import inject_proxy_fence
from tilesim.transforms.inject_tcgen05_fence import inject_tcgen05_fence

__all__ = ["fuse_expect_arrive", "inject_proxy_fence", "inject_tcgen05_fence"]
