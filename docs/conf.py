"""The documentation site, made by `make docs`. It asks no other host for anything."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from nugget import __version__

project = "nugget"
author = "The nugget developers"
copyright = "The nugget developers, MIT licence"
version = release = __version__

extensions = ["myst_parser", "sphinx_copybutton", "nugget_reference"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
nitpicky = True
smartquotes = False  # -- begins options
# The diagrams and shell transcripts are plain text.
highlight_language = "text"

html_theme = "furo"
html_title = "nugget"
html_static_path = ["_static"]
html_css_files = ["nugget.css"]
html_favicon = "_static/nugget.svg"
html_logo = "_static/nugget.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = "$ "
