"""Schedulers: which schedules of a kernel are run.

Directed and random schedules, lanes that lag behind, and every schedule that can make a difference.
A certified run needs none of them; whether it is certified `tilesim.checker` asks first.
"""
