"""Errors that a program gets, as a GPU's driver would give them."""

from __future__ import annotations

from enum import IntEnum


class Number(IntEnum):
    """Numbers that runtime and driver have in common."""

    INVALID_VALUE = 1
    INVALID_CONFIGURATION = 9
    INVALID_FUNCTION = 98
    NO_IMAGE = 209
    INVALID_PTX = 218
    INVALID_HANDLE = 400
    NOT_FOUND = 500
    NO_RESOURCES = 701
    INVALID_CLUSTER = 912


class CudaError(Exception):
    """The program gets this error."""

    def __init__(self, number: Number) -> None:
        super().__init__(number.name)
        self.number = number
