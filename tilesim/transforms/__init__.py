"""Program transformations: fences that are missing, arrivals that can be fused."""
