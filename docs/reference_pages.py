"""The pages of the reference that are written from the code, when the site is built: commands.md and python.md."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import understudy
from understudy.synthesizers.registry import SYNTHESIZERS

REFERENCE = Path(__file__).parent / "reference"
INHERITED = "set_fit_request, set_predict_request, set_predict_proba_request, set_score_request"
"""scikit-learn adds these to every estimator; they route metadata and say nothing about ours."""

PYTHON_PAGE = """# Python

Every public name, from its docstring. `import understudy as us` is enough for all of them; names load on first use.
`help(us.fit)` shows the same text.
"""


def write_reference() -> None:
    """Writes both pages; a page that has not changed keeps its date, so that it is not built again."""
    for name, text in {"commands.md": commands_page(), "python.md": python_page()}.items():
        page = REFERENCE / name
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def commands_page() -> str:
    """The help of every command, from the command line itself."""
    command = [sys.executable, "-m", "typer", "understudy.cli.app", "utils", "docs", "--name", "understudy"]
    page = subprocess.run([*command, "--title", "Commands"], capture_output=True, text=True, check=True).stdout
    # Its list of commands ends in dots; ours has their first sentences, and links.
    sentences = re.findall(r"^## `understudy (\w+)`\n\n(.*?)(?=\. |\.\n)", page, flags=re.MULTILINE | re.DOTALL)
    listed = "".join(f"- [{name}](#understudy-{name}): {' '.join(text.split())}.\n" for name, text in sentences)
    return re.sub(r"^\*\*Commands\*\*:\n\n(\* .*\n)+", listed, page, count=1, flags=re.MULTILINE)


def python_page() -> str:
    """Directives for every name in `__all__`, in groups that follow from what the names are."""
    methods = {place.partition(":")[2] for place in SYNTHESIZERS.values()}
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Methods": [], "Errors and warnings": []}
    for name in understudy.__all__:
        value = getattr(understudy, name)
        if name in methods:
            groups["Methods"].append(f"understudy.{name}")
        elif isinstance(value, type):
            group = "Errors and warnings" if issubclass(value, Exception) else "Classes"
            groups[group].append(f"understudy.{name}")
        elif callable(value):
            groups["Functions"].append(f"understudy.{name}")
    groups["Learners"] = [f"understudy.learners.{name}" for name in understudy.learners.__all__]
    in_graphs = [
        name
        for name, value in vars(understudy.graphs).items()
        if not inspect.ismodule(value) and not name.startswith("_") and name not in understudy.__all__
    ]
    for name in in_graphs:
        is_class = isinstance(getattr(understudy.graphs, name), type)
        groups["Classes" if is_class else "Functions"].append(f"understudy.graphs.{name}")
    return PYTHON_PAGE + "".join(_section(title, names) for title, names in groups.items())


def _section(title: str, names: list[str]) -> str:
    lines = [f"\n## {title}\n", "```{eval-rst}"]
    for name in names:
        if title == "Functions":
            lines += [f".. autofunction:: {name}"]
        else:
            lines += [f".. autoclass:: {name}", "   :members:", f"   :exclude-members: {INHERITED}"]
    return "\n".join([*lines, "```", ""])
