"""A report read back as a browser would read it: elements, attributes, text."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "br", "link", "img", "input", "hr"}
# Elements that HTML lets close by themselves are always closed in our templates.


@dataclass
class Page:
    """Everything a test asks of a page; `unbalanced` lists tags that close nothing."""

    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    text: str = ""
    unbalanced: list[str] = field(default_factory=list)

    @property
    def attributes(self) -> list[tuple[str, str, str]]:
        return [(tag, name, value) for tag, found in self.tags for name, value in found.items()]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.page.tags.append((tag, found))
        self.page.ids += [found["id"]] if "id" in found else []
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.page.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        match self.open[-1] if self.open else "":
            case "script":
                self.page.scripts.append(data)
            case "style":
                self.page.styles.append(data)
            case "h1" | "h2":
                self.page.headings.append(data)
                self.page.text += data
            case _:
                self.page.text += data


def read(html: str) -> Page:
    """Parse a report."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    reader.page.unbalanced += reader.open
    return reader.page
