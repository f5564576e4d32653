"""Sphinx's configuration. Everything that a page loads lies in the site itself."""

from tilewise.version import VERSION

project = "Tilewise"
author = "the authors of Tilewise"
project_copyright = "the authors of Tilewise, Apache-2.0 with the LLVM exception"
version = release = VERSION

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Headings have the anchors that a code host gives them, so that a link works in both places.
myst_heading_anchors = 4
myst_links_external_new_tab = False

# Docstrings are Markdown in spirit: one backtick is code.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False

# Indented blocks are sessions: a prompt, then what was printed.
highlight_language = "console"

html_theme = "furo"
html_title = "Tilewise"
html_static_path = ["static"]
html_css_files = ["tables.css"]
html_copy_source = False
html_show_sourcelink = False
