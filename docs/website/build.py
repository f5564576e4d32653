"""Stages the sources and hands them to Sphinx."""

import tempfile
from pathlib import Path

from sphinx.cmd.build import build_main

from docs.website.stage import stage

CONFIGURATION = Path(__file__).parent


def build(output: Path) -> int:
    """Write the site into `output`; 0 where nothing was warned of.

    The folder is Sphinx's: a second build overwrites pages and leaves files of other names.
    """
    with tempfile.TemporaryDirectory(prefix="tilewise-docs-") as folder:
        sources, doctrees = Path(folder, "sources"), Path(folder, "doctrees")
        stage(sources)
        strict = ["--fail-on-warning", "--quiet", "--builder", "html"]
        places = ["--conf-dir", CONFIGURATION, "--doctree-dir", doctrees, sources, output]
        return build_main([*strict, *map(str, places)])
