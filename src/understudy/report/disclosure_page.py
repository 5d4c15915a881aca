"""A disclosure report as a page of its own: one HTML file that opens offline. Not private."""

import os

from understudy.disclosure.disclose import Disclosure
from understudy.evaluation.scorecard import refuse_release
from understudy.report.disclosure_section import render_report
from understudy.report.markup import esc
from understudy.report.page import document
from understudy.report.svg import styles
from understudy.report.text import shorten
from understudy.run.atomic import atomic_write


def write_disclosure(path: str | os.PathLike[str], disclosure: Disclosure, *, force: bool = False) -> None:
    """Write the page, outside release folders, which may be published. `force` replaces an existing file."""
    refuse_release(path)
    page = render_disclosure(disclosure)
    with atomic_write(path, force=force) as file:
        file.write(page.encode())


def render_disclosure(disclosure: Disclosure) -> str:
    """The page as HTML."""
    report = disclosure.to_json()
    (style,) = styles([disclosure.synthetic])
    name = shorten(disclosure.synthetic, 40)
    head = f'<header><h1>Disclosure report on {esc(name)}</h1><p class="tables">{esc(report["warning"])}</p></header>'
    sections = [("disclosure", "Findings", render_report(report, style))]
    return document(f"Disclosure report on {name}", head, sections, "")
