"""What a verdict needs beside the first run: more schedules, plans of chance, classes of clusters.

`options` is what the caller asks for, `extent` what is said of how far it came.
"""
