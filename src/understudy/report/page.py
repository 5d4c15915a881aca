"""The report: one HTML page with a warning, a verdict, charts and all scores; the certificate is apart, at its end.

A disclosure report has a page of its own too.
"""

import base64
import hashlib
import importlib.resources
import json
import os
from collections.abc import Mapping, Sequence

from understudy import certificate
from understudy.certificate.page import html_head, markdown_to_html
from understudy.disclosure.disclose import PRIVATE, Disclosure, HasStatement, statement_of
from understudy.errors import ConfigError
from understudy.evaluation.scorecard import WARNING, Scorecard, check_document, write_confidential
from understudy.evaluation.scores import Json
from understudy.privacy.accounting.ledger import Statement
from understudy.privacy.accounting.statement import round_up
from understudy.report import (
    chart_sections,
    disclosure_section,
    numbers_section,
    score_sections,
    summary_section,
    verdict,
)
from understudy.report.markup import esc, scroll_table, warning_list
from understudy.report.svg import Style, styles
from understudy.report.text import count_of, finite, listing, model_name, quote, shorten

_COUNTS = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six"}


def write_report(
    path: str | os.PathLike[str],
    scores: Scorecard | Json,
    statement: Statement | HasStatement | None = None,
    *,
    force: bool = False,
    of: str | None = None,
) -> None:
    """Write the report as one HTML file that opens offline. Not private: it shows statistics of the real rows.

    Args:
        path: The file to write, outside of release folders, which may be published. With `force` it may exist.
        scores: A scorecard, or its JSON document.
        statement: A release, or its statement; the certificate is then added at the end of the page.
        force: Replace the file.
        of: The name of the table that was sampled from this release, if several were evaluated.

    Raises:
        TableError: The file exists or cannot be written.
        ConfigError: It would be within a release folder, or an argument is not what it should be.

    >>> import pathlib, tempfile, pyarrow as pa, understudy as us
    >>> table = pa.table({"member": ["yes", "no"] * 50})
    >>> scores = us.evaluate(table, table, holdout=table, metrics=["tv1"], effort="quick")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(pathlib.Path(folder) / "report.html", scores)
    """
    write_confidential(path, render(scores, statement, of=of).encode(), force=force)


def render(
    scores: Scorecard | Json, statement: Statement | HasStatement | None = None, *, of: str | None = None
) -> str:
    """The report as HTML: a pure function of the scorecard and the statement."""
    card = check_document(scores.to_json() if isinstance(scores, Scorecard) else scores)
    methods = styles([table["name"] for table in card["synthetic"]])
    if of is not None and of not in [style.name for style in methods]:
        known = listing([quote(style.name) for style in methods])
        raise ConfigError(f"No table named {quote(of)} was evaluated, only {known}. Name one of these.", setting="of")
    drawn = [
        ("verdict", "Verdict", _verdict(card, methods)),
        ("key", "Key scores", score_sections.key_scores(card, methods)),
        ("findings", "Findings", _findings(card, methods)),
        ("tables", "Tables", _tables(card, methods)),
        ("scores", "Scores compared with real rows", score_sections.bars(card, methods)),
        ("columns", "Single columns", chart_sections.columns(card, methods)),
        ("numbers", "Numbers", numbers_section.section(card, methods)),
        ("pairs", "Pairs of columns", chart_sections.pairs(card, methods)),
        ("cloud", "Principal components", chart_sections.cloud(card, methods)),
        ("categories", "Category frequencies", chart_sections.categories(card, methods)),
        ("prediction", "Predicting every column", chart_sections.prediction(card, methods)),
        ("learning", "Learning from synthetic rows", chart_sections.learning(card, methods)),
        ("all", "All scores", score_sections.table(card, methods)),
    ]
    absent = [title for key, title, content in drawn if not content and key != "numbers"]  # there may be no numbers
    sections = [section for section in drawn if section[2]]
    if rules := score_sections.rules(card, methods):  # without rules it is not absent: there is nothing to show
        after = [key for key, *_ in sections].index("findings") + 1
        sections.insert(after, ("rules", "Rules", rules))
    if maps := chart_sections.maps(card, methods):  # the same without locations
        sections.insert([key for key, *_ in sections].index("all"), ("maps", "Maps", maps))
    if disclosed := disclosure_section.section(card, methods):
        sections.append(("disclosure", "Disclosure", disclosed))
    sections.append(("settings", "Settings and notes", _settings(card, absent)))
    title = f"Report on {listing([shorten(style.name, 40) for style in methods])}"
    return document(title, _head(card, methods), sections, certificate_section(statement, methods, of))


def write_disclosure(path: str | os.PathLike[str], disclosure: Disclosure, *, force: bool = False) -> None:
    """Write the page, for its owner alone and outside release folders, which may be published."""
    write_confidential(path, render_disclosure(disclosure).encode(), force=force, mode=PRIVATE)


def render_disclosure(disclosure: Disclosure) -> str:
    """The page as HTML."""
    report = disclosure.to_json()
    (style,) = styles([disclosure.synthetic])
    name = shorten(disclosure.synthetic, 40)
    about = [disclosure_section.found_text(report)]
    if epsilon := report["membership"]["ceiling"].get("epsilon"):
        about.append(f"Compared with a guarantee of epsilon {round_up(epsilon, 3)}.")
    lead = " ".join(about)
    head = (
        f'<header><h1>Disclosure report on {esc(name)}</h1><p class="lead">{esc(lead)}</p>'
        f'<p class="tables">{esc(report["warning"])}</p></header>'
    )
    sections = [("disclosure", "Attacks", disclosure_section.render_report(report, style))]
    return document(f"Disclosure report on {name}", head, sections, "")


def document(
    title: str,
    head: str,
    sections: Sequence[tuple[str, str, str]],
    certified: str,
    *,
    warning: str = WARNING,
    css: str = "",
) -> str:
    """A page of this head and these sections (id, heading, HTML), below the warning."""
    script, style = _asset("report.js"), _asset("report.css").replace("{WARNING}", warning) + css
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"script-src 'sha256-{digest}'; img-src data:; base-uri 'none'"
    contents = "".join(f'<li><a href="#{key}">{heading}</a></li>' for key, heading, _ in sections)
    if certified:
        contents += '<li><a href="#certificate">Privacy certificate</a></li>'
    several = len(sections) + bool(certified) > 1
    nav = f'<nav aria-label="Contents"><ol>{contents}</ol></nav>' if several else ""
    body = "".join(f'<section id="{key}"><h2>{heading}</h2>{content}</section>' for key, heading, content in sections)
    return (
        f'{html_head(esc(title), style, policy)}<body><p class="banner"><strong>{warning}</strong></p>'
        f'<div class="{"page" if several else "page single"}">{nav}<main>{head}{body}'
        f"{certified}</main></div>"
        f'<div id="tip" role="status" hidden></div><script>{script}</script></body></html>\n'
    )


def _asset(name: str) -> str:
    return importlib.resources.files("understudy.report").joinpath(name).read_text(encoding="utf-8")


def _head(card: Json, methods: Sequence[Style]) -> str:
    """The title, and the tables in one line."""
    count = len(methods)
    what = "One synthetic table" if count == 1 else f"{_COUNTS.get(count, count)} synthetic tables"
    tables = [f"{style.heading()} ({count_of(table['rows'], 'row')})"
              for style, table in zip(methods, card["synthetic"], strict=True)]  # fmt: skip
    real = f"{esc(card['real'].get('file') or card['real']['name'])} ({count_of(card['real']['rows'], 'row')})"
    return (
        f'<header><h1>{what} compared with the real one</h1><p class="tables">{", ".join(tables)}; real: '
        f"{real}</p></header>"
    )


def _tables(card: Json, methods: Sequence[Style]) -> str:
    """What was compared, and how."""
    real, holdout = card["real"], card["holdout"]
    seen = (
        "part of the table that was fitted, so scores on them may be too optimistic"
        if holdout.get("seen")
        else "declared as unseen"
    )
    facts = [("Real table", _rows_of(real)), ("Held out for testing", f"{_rows_of(holdout)}; {seen}")]
    for style, table in zip(methods, card["synthetic"], strict=True):
        facts.append((style.heading(), f"synthetic, {count_of(table['rows'], 'row')}"))
    if card.get("schema"):
        facts.append(("Schema", esc(card["schema"])))
    if card.get("target") is not None:
        positive = f", positive class {esc(card['positive'])}" if card.get("positive") is not None else ""
        facts.append(("Target", f"{esc(card['target'])}{positive}"))
    created = f", {esc(card['created'])}" if card.get("created") else ""
    made = f"{esc(card.get('effort', ''))}, seed {esc(card.get('seed', ''))}"
    facts.append(("Scorecard", f"{made}, Understudy {esc(card.get('understudy', ''))}{created}"))
    if used := _rows_used(card):
        facts.append(("Rows used", used))
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{rows}</dl>'


def _rows_used(card: Json) -> str:
    """The most rows of a synthetic table that each group of scores used, where these are fewer than all."""
    rows: dict[int, list[str]] = {}
    for group, settings in (card.get("settings") or {}).items():
        used = [settings.get(key) for key in ("synthetic_rows", "dependence_synthetic_rows")]
        used += (
            list((settings.get("train_rows") or {}).values()) if isinstance(settings.get("train_rows"), Mapping) else []
        )
        known = [number for number in used if isinstance(number, int)]
        if known:
            rows.setdefault(max(known), []).append(model_name(group))
    whole = max(table["rows"] for table in card["synthetic"])
    each = [f"{count:,} for {esc(listing(groups))}" for count, groups in sorted(rows.items()) if count < whole]
    return f"{'; '.join(each)}; all for the others" if each else ""


def _rows_of(table: Json) -> str:
    """A table by its file, if it came from one, and its number of rows."""
    return f"{esc(table.get('file') or table['name'])}, {count_of(table['rows'], 'row')}"


def _verdict(card: Json, methods: Sequence[Style]) -> str:
    """The first screen: warnings, how several tables rank, and the summary of each."""
    parts = [warning_list(card.get("warnings") or ())]
    if len(methods) > 1 and (ranked := " ".join(verdict.rankings(card, [style.name for style in methods]))):
        parts.append(f'<p class="lead">{esc(ranked)}</p>')
    summaries = summary_section.summaries(card, methods)
    if not summaries:
        parts.append("<p>No verdict: it needs the scores of single columns and of correlations.</p>")
    parts.append(summaries)
    parts.append(
        '<p class="note">These sentences follow from the scores by fixed rules. They describe utility and say '
        "nothing about privacy.</p>"
    )
    return "".join(parts)


def _findings(card: Json, methods: Sequence[Style]) -> str:
    """More sentences about each table, and which scores are missing."""
    names = [style.name for style in methods]
    parts, verdicts = [], []
    for style in methods:
        items = "".join(f"<li>{esc(sentence)}</li>" for sentence in verdict.verdict(card, style.name))
        verdicts.append(f'<div class="verdict"><h3>{style.heading(60)}</h3><ul>{items}</ul></div>')
    parts.append(f'<div class="verdicts">{"".join(verdicts)}</div>')
    compared = [" ".join(verdict.comparison(card, names))] if len(methods) > 1 else []
    parts += [f"<p>{esc(text)}</p>" for text in (*compared, *verdict.absences(card, names))]
    return "".join(parts)


def _settings(card: Json, absent: Sequence[str]) -> str:
    notes = "".join(f"<li>{esc(_note_text(note))}</li>" for note in card.get("notes") or ())
    parts = [f"<ul>{notes}</ul>" if notes else "<p>There are no notes.</p>"]
    settings, seconds = card.get("settings") or {}, card.get("seconds") or {}
    rows = []
    for group in dict.fromkeys([*settings, *seconds]):
        listed = "; ".join(f"{key} = {_plain(value)}" for key, value in (settings.get(group) or {}).items())
        took = f"{finite(seconds.get(group)) or 0.0:.1f}"
        if listed or took != "0.0":  # else it was skipped
            rows.append(f"<tr><td>{esc(model_name(group))}<td>{esc(listed)}<td class=n>{took}")
    if rows:
        parts.append(scroll_table("Settings", ["scores", "settings", "seconds"], rows, "plain settings"))
    skipped = [metric["title"] for metric in card["metrics"] if score_sections.is_skipped(metric)]
    if absent or skipped:
        named = [f"the sections {listing([quote(title) for title in absent])}"] if absent else []
        named += [f"the scores {listing([quote(title, 70) for title in skipped])}"] if skipped else []
        parts.append(
            f'<p class="note">Skipped by the {esc(card.get("effort") or "")} scorecard and not on this page: '
            f"{esc('; '.join(named))}.</p>"
        )
    return "".join(parts)


def _note_text(note: Json) -> str:
    """A note with its group and the tables that it is about."""
    if not note.get("group"):
        return str(note["text"])
    tables = f" ({', '.join(note['tables'])})" if note.get("tables") else ""
    return f"{model_name(note['group'])}{tables}: {note['text']}"


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shorten(text, 160)


def certificate_section(given: Statement | HasStatement | None, methods: Sequence[Style], of: str | None) -> str:
    """The certificate of the release: it alone may be published, and only if the release is private."""
    if (statement := statement_of(given)) is None:
        return ""
    of = methods[0].name if of is None and len(methods) == 1 else of
    whose = f"It belongs to {quote(of, 60)}" if of is not None else "It belongs to one of the tables above"
    whose += f", made by the method {quote(statement.method, 60)}." if statement.method else "."
    if statement.is_private:
        kind = "publishable"
        text = "The privacy certificate of the release: this part may be published; everything above may not."
    else:
        kind, text = "unsafe", "This release is NOT PRIVATE: publish neither this part nor anything above."
    content = markdown_to_html(certificate.to_markdown(statement), down=2)
    return f'<section id="certificate" class="{kind}"><p class="apart">{text}</p><p>{esc(whose)}</p>{content}</section>'
