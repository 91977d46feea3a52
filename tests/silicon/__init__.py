"""Small programs with several outcomes: which the machine allows, and which an H200 shows."""
