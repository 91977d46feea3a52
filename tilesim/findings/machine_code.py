"""The rules of findings about machine code."""

from __future__ import annotations

from tilesim.findings.rule import MEMORY, RuleDoc

DOCS = (
    RuleDoc(
        "translation",
        "The machine code synchronises less than the PTX that it was made of.",
        "With --sass the machine code (SASS) of a kernel is compared with its PTX, by the lines of "
        "the PTX that its instructions come from: each synchronising instruction has to be there, "
        "and what it orders has to be ordered on every path, also round loops. "
        "Here that is not so. The verdict on the PTX is said as well: it may be proved, and says "
        "nothing of this machine code then.",
        (MEMORY,),
        (),
        "Compile with another version of ptxas and compare: --ptxas PATH. If that one is right, "
        "report this one to NVIDIA; if all of them seem wrong, the comparison may be: report it to "
        "tilesim, with the PTX.",
    ),
)
