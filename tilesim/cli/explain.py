"""``tilesim explain``: what a rule means, an example and its fix."""

from __future__ import annotations

import sys

import click

from tilesim.cli import completing
from tilesim.cli.options import style_for
from tilesim.report import rules as texts


@click.command()
@click.argument("rules", nargs=-1, metavar="[RULE]...", shell_complete=completing.rules)
def command(rules: tuple[str, ...]) -> None:
    """Print the documentation of each RULE, or the list of rules.

    A RULE is the name of a finding (deadlock) or the number of a rule that one names (A13).

    Exit: 0, or 2 for a rule that does not exist.
    """
    style = style_for(sys.stdout)
    pages = [tuple(texts.pages(rule, style)) for rule in rules] or [tuple(texts.listing(style))]
    click.echo("\n\n".join("\n".join(lines) for lines in pages), color=style.colour)
