"""Sphinx configuration: ``python3 dev.py docs`` builds the site, warnings are errors."""

from tilesim import __version__

project = "tilesim"
author = "the tilesim authors"
copyright = "the tilesim authors, Apache-2.0"
version = release = __version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# fences of the text form: there is no lexer for them
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"tilesim {__version__}"
html_show_sphinx = False
# so that reports, which are 100 columns wide, need no scrolling
html_theme_options = {"light_css_variables": {"code-font-size": "0.72rem"}}
