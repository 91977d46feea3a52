"""``tilesim recheck``: whether the proof kernel accepts a certificate."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from shlex import quote

import click

from tilesim.checker import INTERRUPTED as INTERRUPTED_REASON
from tilesim.checker.certificate_file import MOST_TEXT, read
from tilesim.checker.certificates import FORM, form_of, recheck
from tilesim.cli import completing
from tilesim.cli.options import FILE, deliver, format_option, say, target_options, time_limit_option
from tilesim.errors import UsageError
from tilesim.files import read_regular
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.loader import Given, Target, load_one, runs_only_tilesim
from tilesim.proof.certificate import Certificate
from tilesim.proof.rules import Answer
from tilesim.report.document import SCHEMA
from tilesim.report.result import FINDINGS, INCONCLUSIVE, INTERRUPTED
from tilesim.wording import printable

#: exit codes by what the kernel answers
CODES = {"certified": 0, "refuted": FINDINGS, "not covered": INCONCLUSIVE}


@click.command()
@click.argument("certificate", metavar="FILE", type=FILE)
@click.argument("target", metavar="[TARGET]", required=False, shell_complete=completing.targets)
@format_option
@time_limit_option
@target_options
@click.pass_context
def command(
    ctx: click.Context, /, certificate: Path, target: str | None, output_format: str,
    time_limit: timedelta | None, given: Given,
) -> None:  # fmt: skip
    """Recheck a proof with the small kernel alone, by the certificate in FILE.

    TARGET is the program. Without it the certificate names it, if that is a .ptx, .tile or .mir
    file or a kernel of the gallery; other code is run only if it is named here. Exit: 0 certified,
    1 refuted, 2 usage or input error, 3 not covered, 130 interrupted.
    """
    found = _read(certificate)
    loaded = load_one(target or _named(certificate, found), given)
    code, trusts = INTERRUPTED, ""
    try:
        program: Program | Mir | Callable[..., Program]
        if loaded.ptx is not None:
            program, trusts = form_of(found, loaded.ptx.mir, loaded.ptx.plain)
        elif found.every is not None and loaded.kernel is not None:
            program, trusts = _builds(loaded), FORM
        else:
            program = loaded.form()
        answer = recheck(found, program, time_limit=time_limit)
        code = CODES[answer.verdict]
    except KeyboardInterrupt:
        answer = Answer("not covered", what=INTERRUPTED_REASON)
    if output_format == "json":
        document = {
            "schema": SCHEMA, "kernel": loaded.id, "verdict": answer.verdict, "rule": answer.rule,
            "what": answer.what, "trusts": trusts, "strict": found.strict,
            "assumptions": list(found.assumptions),
            "for_all": None if found.every is None else str(found.every),
            "inputs": {name: data.hex() for name, data in found.inputs},
        }  # fmt: skip
        deliver(json.dumps(document, indent=2) + "\n", None)
    else:
        say(_line(loaded, answer, found, trusts))
    if code == INTERRUPTED:
        say(f"interrupted while rechecking {loaded.id}", err=True)
    ctx.exit(code)


def _builds(loaded: Target) -> Callable[..., Program]:
    """What makes the program of other values of parameters."""
    return lambda **params: replace(loaded, params={**loaded.params, **params}).build()


def _line(loaded: Target, answer: Answer, certificate: Certificate, trusts: str) -> str:
    """What is said of a recheck, in one line."""
    said = [f"{loaded.id}: {answer}", f"strictness {certificate.strict}"]
    if certificate.assumptions:
        said.append(f"the check leaned on {', '.join(certificate.assumptions)}")
    if certificate.every is not None:
        said.append(f"for {certificate.every}")
    if trusts:
        said.append(f"trusts {trusts}")
    if certificate.inputs:
        said.append(f"for these contents of {', '.join(n for n, _ in certificate.inputs)}")
    return printable("; ".join(said), "")


def _named(path: Path, certificate: Certificate) -> str:
    """The target that a certificate names.

    Raises:
        UsageError: it names none, or one that may be code."""
    name = certificate.target
    if not name:
        raise UsageError(f"{path} names no target: add it to the command")
    if not (name.isprintable() and runs_only_tilesim(name)):
        again = f"tilesim recheck {quote(str(path))} {quote(name)}"
        raise UsageError(
            f"{path} names {printable(name, '')}, and rechecking runs its code: if "
            f"you trust it, name it on the command line: {printable(again, '')}"
        )
    return name


def _read(path: Path) -> Certificate:
    try:
        return read(read_regular(path, MOST_TEXT).decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UsageError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
