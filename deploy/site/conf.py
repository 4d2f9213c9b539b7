"""Sphinx's settings for the pages of docs/; .ci/site builds them."""

project = "Evenkeel"
copyright = "the Evenkeel authors, Apache-2.0"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Evenkeel"
myst_heading_anchors = 4
suppress_warnings = [
    "myst.xref_missing",  # links to source files, which the site does not have; go test ./internal/layout checks all links
    "misc.highlighting_failure",  # JSON with dots, CSV
]
