"""The tables of dependencies in CONTRIBUTING.md, from the comments in pyproject.toml.

python distribution/dependency_tables.py    # replaces the text between the comments `BEGIN` and `END`
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- dependencies: begin -->", "<!-- dependencies: end -->"
_LIST = re.compile(r"(?P<name>[\w-]+) = \[  # (?P<comment>.*)")
_PACKAGE = re.compile(r'  "(?P<name>[\w.-]+)(\[\w+\])?>=.*?",  # (?P<comment>.*)')
_EXTRA = re.compile(r"(?P<name>[\w-]+) = \[(?P<packages>.+)\]  # (?P<comment>.*)")


def make_tables(text: str) -> str:
    """One table for the core, one for the extras, and one for each dependency group.

    >>> print(make_tables('dependencies = [  # core\\n  "numpy>=2.0",  # arrays\\n]\\n[project.scripts]\\n'))
    | core | job |
    |---|---|
    | numpy | arrays |
    """
    lines: list[str] = []
    begin, end = text.index("dependencies = ["), text.index("[project.scripts]")
    for line in text[begin:end].splitlines():
        if found := _LIST.fullmatch(line):
            title = found["comment"] if found["name"] in ("dependencies", "dev") else _titled(found)
            lines += [*([""] if lines else []), f"| {title} | job |", "|---|---|"]
        elif line.startswith("[project.optional-dependencies]"):
            lines += ["", "| extra | job |", "|---|---|"]
        elif found := _PACKAGE.fullmatch(line):
            lines.append(f"| {found['name']} | {found['comment']} |")
        elif found := _EXTRA.fullmatch(line):
            lines.append(f"| {_described(found['name'], found['packages'])} | {found['comment']} |")
        elif line not in ("", "]", "[dependency-groups]"):
            raise ValueError(f"pyproject.toml: expected a dependency with a comment that says its job, found: {line}")
    return "\n".join(lines)


def _titled(group: re.Match[str]) -> str:
    return f"{group['name']} ({group['comment']})"


def _described(name: str, packages: str) -> str:
    """The extra, and its packages if they are called otherwise."""
    names = re.findall(r'"([\w-]+)>=', packages)
    return name if names in ([], [name]) else f"{name} ({', '.join(names)})"


def replace_tables(page: str, tables: str) -> str:
    """The page with these tables between the two comments."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{PAGE.name}: expected the lines {BEGIN} and {END}, in this order. Add them.")
    return f"{before}{BEGIN}\n{tables}\n{END}{after}"


def main() -> None:
    tables = make_tables((ROOT / "pyproject.toml").read_text())
    PAGE.write_text(replace_tables(PAGE.read_text(), tables))


if __name__ == "__main__":
    main()
