"""A benchmark report as a Markdown page with pictures, for GitHub and for documentation."""

from collections.abc import Iterable, Sequence

from understudy.benchmark.report.document import (
    Bullets,
    Drawings,
    Facts,
    Heading,
    Part,
    Section,
    Text,
    TextTable,
    markdown_table,
)
from understudy.benchmark.report.page import BANNER
from understudy.benchmark.report.records import Metrics, Record, ReportInfo, read_records
from understudy.benchmark.report.sections import build_sections


def render_markdown(
    records: Iterable[Record], info: ReportInfo, metrics: Metrics, *, image_folder: str
) -> tuple[str, dict[str, str]]:
    """The report of a suite as Markdown, and its pictures as SVG by file name.

    Args:
        records: Result records, as read from `results.jsonl`.
        info: What the records do not say.
        metrics: Title and direction of each metric; the order is that of the page.
        image_folder: Where the pictures will be, as seen from the page.

    >>> text, pictures = render_markdown([], ReportInfo(suite="smoke", title="Smoke test"), {}, image_folder="images")
    >>> text.splitlines()[0], pictures
    ('# Smoke test', {})
    """
    return render_markdown_sections(
        build_sections(read_records(records), info, metrics), info, image_folder=image_folder
    )


def render_markdown_sections(
    sections: Sequence[Section], info: ReportInfo, *, image_folder: str
) -> tuple[str, dict[str, str]]:
    """These sections as Markdown, and their pictures."""
    pictures: dict[str, str] = {}
    parts = [f"# {info.title}", BANNER]
    parts += [info.description] if info.description else []
    parts += [f"```console\n$ {info.command}\n```"] if info.command else []
    for section in sections:
        parts.append(f"## {section.title}")
        parts += [_render_part(part, image_folder, pictures) for part in section.parts]
    return "\n\n".join(parts) + "\n", pictures


def _render_part(part: Part, image_folder: str, pictures: dict[str, str]) -> str:
    match part:
        case Text(text):
            return text
        case Heading(text):
            return f"### {text}"
        case Bullets(items):
            return "\n".join(f"- {item}" for item in items)
        case Facts(items):
            return markdown_table(TextTable("", tuple(name for name, _ in items), (tuple(v for _, v in items),), 99))
        case TextTable():
            return markdown_table(part)
        case Drawings(drawings, note):
            lines = []
            for drawing in drawings:
                name = f"{drawing.name}.svg"
                pictures[name] = drawing.to_svg()
                alt = drawing.label.replace("[", "(").replace("]", ")")
                lines.append(f"![{alt}]({image_folder.rstrip('/')}/{name})")
            return "\n\n".join([*lines, note] if note else lines)
