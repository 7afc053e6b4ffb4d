"""The documentation site: sphinx-build -W docs FOLDER (what `tox -e docs` does)."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))

import write_components  # noqa: E402

import lw2g  # noqa: E402

write_components.write(HERE / "components")

project, author = "lw2g", "The lw2g authors"
version = release = lw2g.__version__
extensions = ["myst_nb"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_show_copyright = False
html_title = f"lw2g {release}"
html_static_path = ["_static"]
html_js_files = ["sort.js"]
smartquotes = False
myst_heading_anchors = 4
nb_execution_mode = "off"  # tests/integration/test_notebook.py runs them
