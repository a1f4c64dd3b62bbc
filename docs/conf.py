"""Settings of the documentation: `./dev docs` builds it, and a warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "provider"), str(ROOT / "docs")]

from delta_log.version import VERSION  # noqa: E402  (found by the path above)

project = "airflow-provider-delta"
author = "The airflow-provider-delta developers"
copyright = author
release = version = VERSION

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "option_tables",
    "sphinxcontrib.mermaid",
]
myst_enable_extensions = ["colon_fence", "deflist"]
# A fence and not a directive, so that code hosts draw it, too.
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
exclude_patterns = ["_build"]
nitpicky = False

html_theme = "furo"
html_title = f"{project} {release}"
