"""The documentation site, built by `make docs`. It makes no request to other hosts."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from nugget import __version__

project = "nugget"
author = "The nugget developers"
copyright = "The nugget developers, MIT licence"
version = release = __version__

extensions = ["myst_parser", "sphinx_copybutton", "nugget_reference", "equations", "dark_figures"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline", "dollarmath"]
myst_heading_anchors = 4
nitpicky = True
# Signatures show types of other packages, whose pages are not part of this site.
nitpick_ignore_regex = [("py:(class|data|exc|func)", ".*")]
python_maximum_signature_line_length = 68
python_use_unqualified_type_names = True
add_module_names = False
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
