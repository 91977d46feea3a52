"""``tilesim explain``: what a rule means, an example and its fix."""

from __future__ import annotations

import json
import sys

import click

from tilesim.cli import completing
from tilesim.cli.options import format_option, style_for
from tilesim.report import rules as texts
from tilesim.report.document import SCHEMA


@click.command()
@click.argument("rules", nargs=-1, metavar="[RULE]...", shell_complete=completing.rules)
@format_option
def command(rules: tuple[str, ...], output_format: str) -> None:
    """Print the documentation of each RULE, or the list of rules.

    A RULE is the name of a finding (deadlock) or the number of a rule that one names (A13).

    Exit: 0, or 2 for a rule that does not exist.
    """
    if output_format == "json":
        entries = [texts.rule_json(rule) for rule in rules] or texts.listing_json()
        click.echo(json.dumps({"schema": SCHEMA, "rules": entries}, indent=2))
        return
    style = style_for(sys.stdout)
    pages = [tuple(texts.pages(rule, style)) for rule in rules] or [tuple(texts.listing(style))]
    click.echo("\n\n".join("\n".join(lines) for lines in pages), color=style.colour)
