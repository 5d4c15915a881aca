"""A disclosure report as a page of its own: one HTML file that opens offline. Not private."""

import os

from understudy.disclosure.disclose import PRIVATE, Disclosure
from understudy.evaluation.scorecard import refuse_release
from understudy.privacy.statement import round_up
from understudy.report.disclosure_section import found_text, render_report
from understudy.report.markup import esc
from understudy.report.page import document
from understudy.report.svg import styles
from understudy.report.text import shorten
from understudy.run.atomic import atomic_write


def write_disclosure(path: str | os.PathLike[str], disclosure: Disclosure, *, force: bool = False) -> None:
    """Write the page, for its owner alone and outside release folders, which may be published."""
    refuse_release(path)
    page = render_disclosure(disclosure)
    with atomic_write(path, force=force) as file:
        os.chmod(file.name, PRIVATE)
        file.write(page.encode())


def render_disclosure(disclosure: Disclosure) -> str:
    """The page as HTML."""
    report = disclosure.to_json()
    (style,) = styles([disclosure.synthetic])
    name = shorten(disclosure.synthetic, 40)
    about = [found_text(report)]
    if epsilon := report["membership"]["ceiling"].get("epsilon"):
        about.append(f"Compared with a guarantee of epsilon {round_up(epsilon, 3)}.")
    lead = " ".join(about)
    head = (
        f'<header><h1>Disclosure report on {esc(name)}</h1><p class="lead">{esc(lead)}</p>'
        f'<p class="tables">{esc(report["warning"])}</p></header>'
    )
    sections = [("disclosure", "Attacks", render_report(report, style))]
    return document(f"Disclosure report on {name}", head, sections, "")
