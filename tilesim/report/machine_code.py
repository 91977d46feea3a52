"""What is said of the machine code of a kernel beside the verdict on its PTX (``--sass``).

A report with machine code is about both: it fails if the machine code synchronises less than the
PTX, and proves nothing if that could not be decided. `MachineCode.without` is the verdict without
the machine code. In text the two are told apart by these words: *in PTX*, *in machine code*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal, get_args

from tilesim.checker import Report
from tilesim.checker.assumptions import ASSUMPTIONS, MACHINE_CODE, MACHINE_VALUES, Leaning
from tilesim.findings.finding import Finding, Participant
from tilesim.ir.loc import Loc
from tilesim.ir.program import Verdict
from tilesim.ptx.demangle import short
from tilesim.records import dataclass, replace
from tilesim.translation.validation import Difference, Outcome, Validation
from tilesim.wording import count

#: ``validated``: it has the synchronisation of the PTX in its order, or more, as far as machine
#: code says it (see `MachineCode.exceptions`); ``failed``: less; ``undecided``: that could not be
#: shown; ``none``: there is none that could be compared
Kind = Literal["validated", "failed", "undecided", "none"]
#: what was checked: PTX, or a program of which PTX is made
Form = Literal["PTX", "program"]
#: where a line of a PTX is, for reports
Place = Callable[[int], Loc]
RULE: Final = "translation"
_FIX = (
    "compile with another ptxas and compare (--ptxas PATH); if that one is right, report this one "
    "to NVIDIA, else report the comparison to tilesim"
)
#: reasons of what is undecided that are said
_MOST = 4


@dataclass(frozen=True)
class MachineCode:
    """The machine code of a kernel. ``without`` is the verdict without it, on the ``form`` of the
    kernel that was checked, ``source`` which code it is, in words, ``missing`` why there is none
    that could be compared (else empty)."""

    kind: Kind
    without: Verdict
    form: Form
    source: str
    validation: Validation | None = None
    missing: str = ""

    @property
    def exceptions(self) -> tuple[str, ...]:
        """Kinds of instructions whose order machine code does not say, of those that it has."""
        found = () if self.validation is None else self.validation.undecided
        return tuple(sorted({one.kind for one in found if one.always}))

    @property
    def said(self) -> str:
        """What was found, in a sentence without a full stop."""
        if self.validation is None:
            return f"not compared: {self.missing}"
        words = {"validated": "validated", "failed": "FAILED", "undecided": "not decided"}
        counts = "; ".join(filter(None, (_outcomes(self.validation), _relations(self.validation))))
        but = "; not compared is the order of " + ", ".join(self.exceptions)
        said = f"{words[self.kind]}: {self.source} against its PTX: {counts}"
        return said + (but if self.exceptions else "")

    def head(self, rechecked: str = "") -> str:
        """What stands behind the kernel in the first line of a report. ``rechecked`` stands behind
        the verdict on what was checked, of which a recheck is."""
        where = "in PTX" if self.form == "PTX" else "as a program"
        proved = f"{self.without.upper()} {where}{rechecked}"
        match self.kind:
            case "validated":
                but = f" but for {', '.join(self.exceptions)}" if self.exceptions else ""
                return f"{rechecked}, machine code validated{but}"
            case "failed":
                return f" in machine code, {proved}"
            case "undecided":
                return f", {proved}, machine code not decided"
            case _:
                return f", {proved}, machine code not compared"


def _outcomes(validation: Validation) -> str:
    """How many synchronising instructions have which outcome."""
    total = len(validation.instructions)
    found = validation.outcomes
    each = ", ".join(f"{found[one]} {one}" for one in get_args(Outcome) if one in found)
    executed = f", {validation.executed} of them executed in both" if validation.executed else ""
    if validation.unreached:
        executed += f", {validation.unreached} not reached within the steps of executions"
    return f"{count(total, 'synchronising instruction')}{f' ({each})' if each else ''}{executed}"


def _relations(validation: Validation) -> str:
    """How many relations there are, by what became of them."""
    sums = {
        word: sum(getattr(one, word) for one in validation.relations.values())
        for word in ("shown", "explained", "lost", "undecided")
    }
    each = ", ".join(f"{number} {word}" for word, number in sums.items() if number)
    return f"{count(sum(sums.values()), 'relation')}{f' ({each})' if each else ''}"


def kind_of(validation: Validation) -> Kind:
    """What a comparison comes to."""
    if validation.findings or any(one.lost for one in validation.relations.values()):
        return "failed"
    if "lost" in validation.outcomes:
        return "failed"
    open_ = any(one.undecided for one in validation.relations.values())
    open_ |= any(not one.always for one in validation.undecided)
    if open_ or "undecided" in validation.outcomes:
        return "undecided"
    return "validated"


def combined(report: Report, code: MachineCode, place: Place) -> Report:
    """The report on the PTX with what was found in its machine code.

    Args:
        report: on the PTX alone.
        place: where a line of that PTX is.
    """
    covers = f"of the {code.form}: {report.covers}"
    match code.kind:
        case "validated":
            return replace(report, leanings=tuple(_leanings(report, code)))
        case "failed":
            assert code.validation is not None
            found = (*report.findings, *_findings(code.validation, code.source, place))
            return replace(report, verdict="failed", findings=found, covers=covers)
        case _:
            proved = report.verdict in ("proved", "exhausted")
            weaker: Verdict = "bounded" if proved else report.verdict
            reasons = (*report.reasons, *_reasons(code, place))
            return replace(report, verdict=weaker, reasons=reasons, covers=covers)


def _leanings(report: Report, code: MachineCode) -> Iterator[Leaning]:
    """What a proof still leans on when its machine code is validated: values are compared for the
    threads and inputs that were executed only."""
    for one in report.leanings:
        if one.name != MACHINE_CODE:
            yield one
            continue
        if code.exceptions:
            kinds = ", ".join(code.exceptions)
            yield replace(one, text=f"the machine code has {kinds} in the order of the PTX")
        yield replace(one, name=MACHINE_VALUES, text=ASSUMPTIONS[MACHINE_VALUES])


def _findings(validation: Validation, source: str, place: Place) -> Iterator[Finding]:
    """The differences by which the machine code synchronises less."""
    for one in validation.findings:
        found = f"; the SASS is {one.sass} at {one.pc:#x}" if one.pc is not None else ""
        yield Finding(
            RULE, one.sentence.rstrip("."), tuple(_sides(one, validation, place)),
            notes=(f"{one.kind}, seen by {one.rule}, in {source}{found}",), fix=_FIX,
        )  # fmt: skip
    if not validation.findings:
        for lost in (one for one in validation.instructions if one.outcome == "lost"):
            side = Participant(
                _role("PTX", validation), 0, None, f"has {_mnemonic(lost.text)}", place(lost.line)
            )
            yield Finding(
                RULE, lost.why or f"{lost.kind} is not in the machine code", (side,),
                notes=(f"lost, in {source}",), fix=_FIX,
            )  # fmt: skip


def _sides(one: Difference, validation: Validation, place: Place) -> Iterator[Participant]:
    loc = place(one.line)
    yield Participant(_role("PTX", validation), 0, None, f"has {_mnemonic(one.text)}", loc)
    if one.other is not None:
        line, text = one.other
        yield Participant(_role("PTX", validation), 0, None, f"has {_mnemonic(text)}", place(line))
    has = "has nothing for it" if one.pc is None else f"has {one.sass} at {one.pc:#x}"
    yield Participant(_role("SASS", validation), 0, None, has, loc)


def _mnemonic(text: str) -> str:
    """The name of an instruction of PTX; its line is shown besides."""
    words = text.split()
    plain = (word for word in words if not word.startswith("@") and not word.endswith(":"))
    return next(plain, text)


def _role(form: str, validation: Validation) -> str:
    return f"{form} of {short(validation.kernel)}"


def _reasons(code: MachineCode, place: Place) -> Iterator[str]:
    """Why nothing is proved of the machine code."""
    if code.validation is None:
        yield f"the machine code is not compared: {code.missing}"
        return
    undecided = [one for one in code.validation.undecided if not one.always]
    left = sum(one.undecided for one in code.validation.relations.values())
    total = len(undecided)
    yield (
        f"{count(total, 'instruction')} and {count(left, 'relation')} of the machine code are "
        f"undecided ({code.source})"
    )
    for one in undecided[:_MOST]:
        yield f"undecided: {one.kind} at {place(one.line).whole}: {one.why}"
    if total > _MOST:
        yield f"and {total - _MOST} more"
