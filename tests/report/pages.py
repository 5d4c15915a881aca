"""Parsed pages for the tests of the report, and names that break careless HTML."""

import html.parser

SPACE = "\N{NO-BREAK SPACE}"

NASTY = {
    "age": "<script>alert(1)</script>",
    "sex": "a \"quoted\" & 'odd' name",
    "race": "😀 " + "very long " * 40,
    "education": "</style></script><img src=x onerror=alert(1)>",
    "income": "back`tick **bold** | pipe\nnew line\x00nul",
}


class Text(html.parser.HTMLParser):
    """The visible text of a page in order, and its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._hidden = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._hidden = tag if tag in ("style", "script", "title") and not self._hidden else self._hidden

    def handle_endtag(self, tag: str) -> None:
        self._hidden = "" if tag == self._hidden else self._hidden

    def handle_data(self, data: str) -> None:
        if data.strip() and not self._hidden:
            self.texts.append(data.strip())
