"""What a report says when it was asked for all values of parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import NDArray

from tilesim.errors import UsageError
from tilesim.ir.kernel import Kernel, built
from tilesim.ir.loc import UNKNOWN
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.search.forall import ForAll, Prove
from tilesim.search.values import Claim, Given, Values
from tilesim.sim.forall.free import Obstacle, Refused
from tilesim.sim.simulate import check_inputs, kernel_of
from tilesim.timer import Timer

if TYPE_CHECKING:
    from tilesim.verdict import Report

#: choices of the parameters that are taken one by one
_CHOICES = 64


@dataclass(frozen=True)
class Asked:
    """A program, how it was made, and for which ``values`` of parameters it is to be proved.

    ``build`` is a `Kernel`, or another function that makes programs of ``arguments``.
    """

    program: Program | Mir
    build: Callable[..., Program | Mir] | None
    arguments: Mapping[str, Any]
    values: Mapping[str, Values]

    @classmethod
    def of(
        cls, program: Program | Mir | Callable[..., Program | Mir], given: Given,
        params: Mapping[str, Any],
    ) -> Asked:  # fmt: skip
        """What `tilesim.check` is asked; ``given`` are values by parameter: None is every one from
        1 on, else a range, or a text like ``64..:64`` (`Values.parse`).

        A parameter without a default, and not among ``params``, has the first of its values.

        Raises:
            UsageError: there are no such values, or a finished program has no parameters.
        """
        for what, named in (("for_all", given), ("params", params)):
            if not isinstance(named, Mapping):
                raise UsageError(f"{what} must be values by the names of parameters, not {named!r}")
        values = {name: Values.of(these) for name, these in given.items()}
        if not values and not params:
            return cls(built(cast(Any, program)), None, {}, {})
        if isinstance(program, Program | Mir):
            raise UsageError(
                "a finished program has no parameters: for_all and params need a kernel"
            )
        if not callable(program):
            raise UsageError(f"expected a kernel or a program, got {program!r}")
        defaults = _defaults(program, params) if isinstance(program, Kernel) else {}
        unknown = sorted(values.keys() - defaults.keys()) if isinstance(program, Kernel) else []
        if unknown:
            raise UsageError(
                f"kernel {program} has no parameter {unknown[0]}; it has {', '.join(defaults)}"
            )
        firsts = {n: v.first for n, v in values.items() if n not in defaults}
        # what the host passes by value follows the parameters, unless it is asked for or given
        passed = defaults.keys() - getattr(program, "params", {}).keys() - values.keys()
        own = {n: v for n, v in defaults.items() if n not in passed}
        return cls(program(**firsts | {**params}), program, {**own, **firsts, **params}, values)

    def added_to(
        self, report: Report, prove: Prove, strict: Strict, timer: Timer,
        check: Callable[[Program | Mir], Report] | None = None,
    ) -> Report:  # fmt: skip
        """``report``, of this program, and what can be said of all values.

        It covers them if all are proved; it is that of a value for which the check fails, if there
        is one. Otherwise it is what it was, and says of which values, and why. Of several
        parameters with values without end all are looked at for one, and the others are what they
        are in this program. ``check``: as `ForAll` takes it. Of a program that is not proved
        nothing is said for other values.
        """
        if not self.values or self.build is None:
            return report
        name, others = _main(self.values)
        here = ", ".join(f"{n} = {self.arguments[n]}" for n in self.values if n in self.arguments)
        if report.verdict != "proved":
            return self._of_one(report, here)
        claims: list[Claim] = []
        for choice in others:
            proof = ForAll(
                self.build, {**self.arguments, **choice}, name, self.values[name], prove, strict,
                timer, check=check,
            )  # fmt: skip
            claim = proof.claim()
            claim = _with(claim, choice)
            if proof.failing is not None and claim.at is not None:
                return _failing(proof.failing, claim, {**choice, name: claim.at})
            claims.append(claim)
        endless = {n: self.arguments[n] for n in _endless(self.values, name)}
        return _whole(report, claims, name, self.values, endless, here)

    def _of_one(self, report: Report, here: str) -> Report:
        """What a report says of one choice of values, of which all that were asked for hang."""
        wanted = ", ".join(values.says(name) for name, values in self.values.items())
        why = Obstacle(f"{here} is {report.verdict}", UNKNOWN)
        rules = ", ".join(dict.fromkeys(f.rule for f in report.findings))
        said = (report.verdict, f"{here}: {rules}" if report.verdict == "failed" else here)
        parts = (said,) if report.verdict == "failed" else (said, ("not shown", wanted))
        claim = Claim(wanted, False, why, parts=parts)
        if report.verdict != "exhausted":
            return replace(report, for_all=claim)
        reasons = (*report.reasons, f"not shown for {wanted}: {why}")
        return replace(report, reasons=reasons, for_all=claim)


def _endless(wanted: Mapping[str, Values], name: str) -> list[str]:
    """The parameters that have values without end, but for one."""
    return [n for n, values in wanted.items() if n != name and values.last is None]


def _defaults(kernel: Kernel, params: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a kernel's parameters, and of the scalars that the host passes to it."""
    return {**kernel.params, **kernel.scalars(**params)}


def fitting(inputs: Mapping[str, Any], program: Program | Mir) -> dict[str, NDArray[Any]]:
    """The inputs of a check, for the program of another value.

    Raises:
        Refused: a tensor has another shape in this program.
    """
    try:
        return check_inputs(kernel_of(program), inputs)
    except UsageError as why:
        raise Refused(Obstacle(str(why), UNKNOWN)) from why


def _main(wanted: Mapping[str, Values]) -> tuple[str, list[dict[str, int]]]:
    """The parameter whose values are not taken one by one, and the choices of the others that
    have some last value."""
    name = max(wanted, key=lambda n: (wanted[n].last is None, wanted[n].count or 0))
    counts = {n: values.count for n, values in wanted.items() if n != name and values.count}
    each = [[(n, wanted[n].at(i)) for i in range(number)] for n, number in counts.items()]
    chosen = [dict(choice) for choice in product(*each)]
    if len(chosen) > _CHOICES:
        raise UsageError(f"{len(chosen)} choices of {', '.join(counts)} are too many")
    return name, chosen


def _with(claim: Claim, choice: Mapping[str, int]) -> Claim:
    """A claim for one choice of other parameters."""
    if not choice:
        return claim
    where = ", ".join(f"{name} = {value}" for name, value in choice.items())
    return replace(claim, parts=tuple((said, f"{where}, {of}") for said, of in claim.parts))


def _failing(report: Report, claim: Claim, at: Mapping[str, int]) -> Report:
    where = ", ".join(f"{name} = {value}" for name, value in at.items())
    claim = replace(claim, where=tuple(at.items()))
    return replace(report, covers=f"{where}; {report.covers}", for_all=claim)


def _whole(
    report: Report, claims: list[Claim], name: str, wanted: Mapping[str, Values],
    endless: Mapping[str, Any], here: str,
) -> Report:  # fmt: skip
    """The claims of all choices as one; ``endless`` are parameters that have one value in all of
    them, although there is no end of others; ``here``: the values of the program of ``report``."""
    text = ", ".join(values.says(name) for name, values in wanted.items())
    open_ = next((claim for claim in claims if not claim.proved), None)
    if open_ is None and endless:
        at = "".join(f", {n} = {value}" for n, value in endless.items())
        shown = tuple((said, f"{of}{at}") for said, of in claims[0].parts)
        open_ = replace(
            claims[0], proved=False, obstacle=_one_at_a_time(claims[0], endless),
            parts=(*shown, ("not shown", text)),
        )  # fmt: skip
    if open_ is not None:
        parts = open_.parts
        if parts[0][0] != "proved":
            parts = (("proved", here), *parts)
        claim = replace(open_, wanted=text, parts=parts)
        far = "" if open_.upto is None else f"; shown up to {name} = {open_.upto}"
        reason = f"not shown for {text}: {claim.obstacle}{far}"
        return replace(report, reasons=(*report.reasons, reason), for_all=claim)
    ends = [claim.limit for claim in claims if claim.limit is not None]
    limit = min(ends, key=lambda end: end[0], default=None)
    refused = tuple(dict.fromkeys(value for claim in claims for value in claim.refused))
    said = text
    if limit is not None:
        others = (values.says(n) for n, values in wanted.items() if n != name)
        said = ", ".join([wanted[name].upto(name, limit[0]), *others])
    runs, parts = sum(claim.runs for claim in claims), (("proved", said),)
    whole = Claim(text, True, None, limit, runs, refused, parts=parts, period=claims[0].period)
    return replace(report, covers=f"{report.covers}; {whole.covers}", for_all=whole)


def _one_at_a_time(claim: Claim, endless: Mapping[str, Any]) -> Obstacle:
    """Why a claim about one parameter is none about others that have values without end."""
    other = next(iter(endless))
    at = ", ".join(f"{name} = {value}" for name, value in endless.items())
    return Obstacle(
        f"{other} has values without end as well, give it a last one (`{other}=1..4`); "
        f"with {at} it is shown for {claim.covers}",
        UNKNOWN,
    )
