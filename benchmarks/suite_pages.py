"""The pages of the suites that were run, from their results in results/suites: no cell is run.

python benchmarks/suite_pages.py            # writes results/suite_NAME.md, its pictures, and part of docs/benchmarks.md
python benchmarks/suite_pages.py --add benchmark-results/quail-paper     # adds the results of a run first
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "src")]
RESULTS = HERE / "results"
SUITES = ("frontier", "quail-paper", "peers")
OVERVIEW = HERE.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- suites: begin -->", "<!-- suites: end -->"


def make_pages() -> Iterator[tuple[Path, str]]:
    """Every generated file with its content."""
    from benchmarks.papers.quail.suite_page import build_quail_sections
    from understudy.benchmark.pages import TITLES, describe_results
    from understudy.benchmark.report.document import render_markdown
    from understudy.benchmark.report.records import read_records as type_records
    from understudy.benchmark.report.sections import build_sections
    from understudy.benchmark.results import read_records

    parts = []
    for name in SUITES:
        source = RESULTS / "suites" / f"{name}.parquet"
        if not source.exists():
            continue
        records = read_records(source)
        info = describe_results(source, records)
        build = build_quail_sections if name == "quail-paper" else build_sections
        sections = build(type_records(records), info, TITLES)
        page, pictures = render_markdown(sections, info, image_folder=f"images/{name}")
        yield RESULTS / f"suite_{name}.md", page
        for picture, content in pictures.items():
            yield RESULTS / "images" / name / picture, content
        parts.append(_summarise(name, page))
    before, rest = OVERVIEW.read_text().split(BEGIN)
    joined = "\n\n".join(parts)
    yield OVERVIEW, f"{before}{BEGIN}\n\n{joined}\n\n{END}{rest.split(END)[1]}"


def _summarise(name: str, page: str) -> str:
    """The title of a page, what its summary says, and where the rest is."""
    title, _, rest = page.partition("\n")
    summary = rest.split("## Summary\n")[1].split("\n## ")[0].strip()
    lines = [line for line in summary.split("\n\n") if not line.startswith("In grey")]
    link = f"[All tables and figures](../benchmarks/results/suite_{name}.md)"
    return "\n\n".join([f"### {title.removeprefix('# ')}", *lines, link])


def add_results(folder: Path) -> None:
    """Takes over the results of a run: a small Parquet file, and what was run. Results of other cells are kept."""
    from understudy.benchmark.results import read_records, write_parquet

    suite = json.loads((folder / "suite.json").read_text())
    target = RESULTS / "suites"
    target.mkdir(exist_ok=True)
    known = target / f"{suite['name']}.parquet"
    records = {record["key"]: record for record in read_records(known)} if known.exists() else {}
    records |= {record["key"]: record for record in read_records(folder)}
    write_parquet(records.values(), known)
    kept = {key: suite.get(key) for key in ("name", "title", "description", "command", "footnotes")}
    (target / f"{suite['name']}.json").write_text(json.dumps(kept, indent=1) + "\n")


def write_pages() -> None:
    for name in SUITES:
        shutil.rmtree(RESULTS / "images" / name, ignore_errors=True)
    for path, content in list(make_pages()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        print(path.relative_to(HERE.parent))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=Path, nargs="*", default=[], help="results folders of 'understudy benchmark run'")
    arguments = parser.parse_args()
    for results in arguments.add:
        add_results(results)
    write_pages()
