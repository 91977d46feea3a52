"""``tilesim recheck``: whether the proof kernel accepts a certificate."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tilesim.cli import completing
from tilesim.cli.options import FILE, deliver, format_option, target_options
from tilesim.errors import UsageError
from tilesim.files import read_regular
from tilesim.loader import Given, load_one
from tilesim.proof.certificate import MOST_TEXT, Certificate, read
from tilesim.report.json import SCHEMA
from tilesim.report.result import FINDINGS, INCONCLUSIVE
from tilesim.search.certificates import recheck

#: exit codes by what the kernel answers
CODES = {"certified": 0, "refuted": FINDINGS, "not covered": INCONCLUSIVE}


@click.command()
@click.argument("certificate", metavar="FILE", type=FILE)
@click.argument("target", metavar="[TARGET]", required=False, shell_complete=completing.targets)
@format_option
@target_options
@click.pass_context
def command(
    ctx: click.Context, /, certificate: Path, target: str | None, output_format: str, given: Given
) -> None:
    """Recheck a proof with the small kernel alone, by the certificate in FILE.

    TARGET is the program; without it the one that the certificate names. Exit: 0 certified, 1
    refuted, 2 usage or input error, 3 not covered.
    """
    found = _read(certificate)
    name = target or found.target
    if not name:
        raise UsageError(f"{certificate} names no target: add it to the command")
    loaded = load_one(name, given)
    answer = recheck(found, loaded.form())
    if output_format == "json":
        document = {
            "schema": SCHEMA, "kernel": loaded.id, "verdict": answer.verdict, "rule": answer.rule,
            "what": answer.what, "strict": found.strict, "assumptions": list(found.assumptions),
        }  # fmt: skip
        deliver(json.dumps(document, indent=2) + "\n", None)
    else:
        leaning = f" (leaning on {', '.join(found.assumptions)})" if found.assumptions else ""
        read_ = "" if loaded.ptx is None else "; how PTX is read is not rechecked"
        deliver(f"{loaded.id}: {answer}{leaning}{read_}\n", None)
    ctx.exit(CODES[answer.verdict])


def _read(path: Path) -> Certificate:
    try:
        return read(read_regular(path, MOST_TEXT).decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UsageError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
