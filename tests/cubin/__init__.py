"""Machine code: cubins that NVRTC makes here."""
