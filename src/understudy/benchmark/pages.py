"""From results on disk to pages: what `understudy benchmark report` and `compare` write."""

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

from understudy.benchmark.metrics import METRICS
from understudy.benchmark.report import (
    ReportInfo,
    compare_results,
    render_comparison,
    render_html,
    render_markdown,
)
from understudy.benchmark.results import Record, ResultStore, read_records
from understudy.errors import ConfigError, UnderstudyError
from understudy.run.atomic import atomic_write, require_free

TITLES = {name: (metric.title, metric.higher_is_better) for name, metric in METRICS.items()}
PAPER = "quail-paper"
"""The suite whose page shows the published figures beside ours."""


def write_report_page(
    results: str | os.PathLike[str], out: Path, *, title: str | None = None, force: bool = False
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
    if out.suffix == ".html":
        page = _render_html(records, info)
        pictures: dict[str, str] = {}
    else:
        page, pictures = render_page(records, info, image_folder=images.name)
    written = [out]
    if pictures:
        images.mkdir(exist_ok=True)
    for name, picture in pictures.items():
        written.append(images / name)
        with atomic_write(written[-1], force=True) as file:
            file.write(picture.encode())
    with atomic_write(out, force=force) as file:
        file.write(page.encode())
    return written


def _render_html(records: Sequence[Record], info: ReportInfo) -> str:
    if info.suite == PAPER:
        from understudy.benchmark.report.quail import render_quail_html

        return render_quail_html(records, info, TITLES)
    return render_html(records, info, TITLES)


def render_page(records: Sequence[Record], info: ReportInfo, *, image_folder: str) -> tuple[str, dict[str, str]]:
    """The page as Markdown, and its pictures by file name."""
    if info.suite == PAPER:
        from understudy.benchmark.report.quail import render_quail_markdown

        return render_quail_markdown(records, info, TITLES, image_folder=image_folder)
    return render_markdown(records, info, TITLES, image_folder=image_folder)


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
        footnotes=tuple(peer_footnotes(records)),
    )


def _completeness(path: Path) -> list[str]:
    """What a results folder has besides the records on the page, or lacks."""
    if not path.is_dir():
        return []
    store = ResultStore(path)
    records, other = store.read_current()
    total = store.num_cells
    texts = [f"{len(records):,} of {total:,} cells have run."] if total > len(records) else []
    if other:
        texts.append(f"{other:,} results of other settings or versions in the folder are not shown.")
    return texts


def peer_footnotes(records: Sequence[Record]) -> list[str]:
    """How the peers among the records were run, and their known privacy defects."""
    from understudy.benchmark.peers.description import read_peer

    notes = []
    for name in sorted({str(record["peer"]) for record in records if record.get("peer")}):
        try:
            peer = read_peer(name)
        except UnderstudyError:  # results of a peer that is no longer there
            continue
        notes += [f"{peer.title}: {note}" for note in peer.notes]
        for defect in peer.defects:
            which = f" ({', '.join(defect.methods)})" if defect.methods else ""
            notes.append(f"{peer.title}{which}: {defect.text} Source: {defect.source}.")
    return notes


def compare_folders(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> tuple[dict[str, object], str]:
    """Two sets of results, as JSON and as text."""
    found = compare_results(read_records(first), read_records(second), TITLES)
    content = {
        "matched": found.num_matched,
        "differences": [dataclasses.asdict(each) for each in found.differences],
        "new_failures": [dataclasses.asdict(each) for each in found.new_failures],
        "recoveries": [dataclasses.asdict(each) for each in found.recoveries],
        "both_failed": found.both_failed,
        "only_first": len(found.only_first),
        "only_second": len(found.only_second),
    }
    return content, render_comparison(found, TITLES)
