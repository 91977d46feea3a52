"""Translation validation of synchronisation: the PTX of a kernel against the SASS ptxas made of it.

`validate` compares; `Validation` is what it says.
"""

from tilesim.translation.validate import TranslationError, validate
from tilesim.translation.validation import (
    Difference,
    Inserted,
    Outcome,
    Relations,
    Translated,
    Undecided,
    Validation,
)

__all__ = [
    "Difference",
    "Inserted",
    "Outcome",
    "Relations",
    "Translated",
    "TranslationError",
    "Undecided",
    "Validation",
    "validate",
]
