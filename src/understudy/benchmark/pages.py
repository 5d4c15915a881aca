"""From results on disk to pages: what `understudy benchmark report` and `compare` write."""

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

from understudy.benchmark.metrics import METRICS
from understudy.benchmark.report.comparison import compare_results, render_comparison
from understudy.benchmark.report.document import render_html, render_markdown
from understudy.benchmark.report.records import ReportInfo
from understudy.benchmark.report.records import read_records as type_records
from understudy.benchmark.report.sections import Build, build_sections
from understudy.benchmark.results import Record, ResultStore, read_records
from understudy.errors import ConfigError
from understudy.run.atomic import require_free, write_file

TITLES = {name: (metric.title, metric.higher_is_better) for name, metric in METRICS.items()}


def write_report_page(
    results: str | os.PathLike[str],
    out: Path,
    *,
    title: str | None = None,
    force: bool = False,
    build: Build = build_sections,
) -> list[Path]:
    """The page of a results folder as HTML or Markdown, by the extension of `out`; returns the files written.

    The pictures of a Markdown page go to the folder STEM_images beside it.
    """
    if out.suffix not in (".html", ".md"):
        raise ConfigError(f"A report is an .html or a .md file, found {out.name!r}. Choose one of these extensions.")
    require_free(out, force=force)
    records = read_records(results)
    if not records:
        raise ConfigError(f"{results} has no results yet. Run the suite first.")
    info = describe_results(results, records, title=title)
    images = out.with_name(f"{out.stem}_images")
    sections = build(type_records(records), info, TITLES)
    if out.suffix == ".html":
        page, pictures = render_html(sections, info), dict[str, str]()
    else:
        page, pictures = render_markdown(sections, info, image_folder=images.name)
    written = [out]
    if pictures:
        images.mkdir(exist_ok=True)
    for name, picture in pictures.items():
        written.append(images / name)
        write_file(written[-1], picture.encode(), force=True)
    write_file(out, page.encode(), force=force)
    return written


def describe_results(
    results: str | os.PathLike[str], records: Sequence[Record], *, title: str | None = None
) -> ReportInfo:
    """What a page says about the suite, from the file beside the results if there is one."""
    path = Path(results)
    beside = path / "suite.json" if path.is_dir() else path.with_suffix(".json")
    try:
        suite = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        suite = {}
    name = str(suite.get("name") or records[0].get("suite") or path.stem)
    dates = sorted({str(record["date"]) for record in records if record.get("date")})
    return ReportInfo(
        suite=name,
        title=title or str(suite.get("title") or name),
        description=" ".join([str(suite.get("description", "")), *_completeness(path)]).strip(),
        command=str(suite.get("command", "")),
        date=" to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "",
        footnotes=tuple(suite.get("footnotes", ())),
    )


def _completeness(path: Path) -> list[str]:
    """What a results folder has besides the records on the page, or lacks."""
    if not path.is_dir():
        return []
    records, total, other = ResultStore(path).read_current()
    sentences = [f"{len(records):,} of {total:,} cells have run."] if total > len(records) else []
    if other:
        sentences.append(f"{other:,} results of other settings or versions in the folder are not shown.")
    return sentences


def compare_folders(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> tuple[dict[str, object], str]:
    """Two sets of results, as JSON and as text."""
    comparison = compare_results(read_records(first), read_records(second), TITLES)
    only = {"only_first": len(comparison.only_first), "only_second": len(comparison.only_second)}
    return dataclasses.asdict(comparison) | only, render_comparison(comparison, TITLES)
