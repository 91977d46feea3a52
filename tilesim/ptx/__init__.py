"""Kernels that exist as PTX: their text, their launch, and what their instructions compute."""
