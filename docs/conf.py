"""The documentation site. `make docs` builds it into site/, without network; every warning is an error.

The source folder is the repository itself, not docs/: a link such as `../benchmarks/results/mwem.md` then works on the
site as it does in a clone.
"""

import os
import sys
from pathlib import Path

from sphinx.application import Sphinx

from understudy import __version__

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
from reference_pages import write_reference  # noqa: E402

project = "Understudy"
copyright = "the authors of Understudy. MIT licence"
version = release = __version__
html_title = f"Understudy {__version__}"

root_doc = "docs/index"
include_patterns = ["docs/**", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "benchmarks/results/*.md"]
exclude_patterns = ["docs/_*", "docs/make_images.py", "site", "build", ".venv", "src", "tests"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]

# Pages are written for GitHub too: headings are link targets by their text, as there.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["config.cache", "ref.python"]  # the latter: a word in backticks that names two attributes
smartquotes = False  # --resume must not become a dash

# Docstrings are plain text with Markdown's backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

# Notebooks are stored without outputs and run when the site is built; one that raises fails the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "notebooks")
nb_execution_in_temp = True  # they write files
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
_PATHS = [str(ROOT / "src"), str(ROOT / "docs" / "tutorials"), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(_PATHS)

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_additional_pages = {"index": "start.html"}  # the front page is docs/index.html
templates_path = ["_templates"]
pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0f5c8c", "color-brand-content": "#0f5c8c"},
    "dark_css_variables": {"color-brand-primary": "#6fb7e0", "color-brand-content": "#6fb7e0"},
}


def setup(app: Sphinx) -> None:
    app.connect("config-inited", lambda app, config: write_reference())
