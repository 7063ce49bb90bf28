"""The glossary: each word can be reached from a page that uses it, and leads to its code and its page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.house.documents import pages, transcripts
from tests.house.project import ROOT

_GLOSSARY = ROOT / "docs" / "glossary.md"
_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./|docs/)?glossary\.md#([\w-]+)\)")
_NOT_PROSE = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|^\|.*$|^#.*$", re.MULTILINE)


def _entries() -> Mapping[str, str]:
    """The text of each entry, by its word."""
    parts = re.split(r"^### (.*)$", _GLOSSARY.read_text("utf-8"), flags=re.MULTILINE)[1:]
    texts = (" ".join(text.partition("\n## ")[0].split()) for text in parts[1::2])
    return dict(zip(parts[::2], texts, strict=True))


def _links() -> Iterator[tuple[Path, str, str, str]]:
    """Page, word, its entry, and the prose before the link."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        page = path.read_text("utf-8")
        for block in transcripts.blocks(page):
            page = page.replace(block.text, "")
        for match in _LINK.finditer(page):
            yield path, match[1], match[2], _NOT_PROSE.sub("", page[: match.start()])


def test_each_word_is_linked_from_a_page() -> None:
    """A reader who meets a word for the first time finds its entry."""
    linked = {anchor for path, _, anchor, _ in _links() if path != _GLOSSARY}

    assert pages.anchors("\n".join(f"### {word}" for word in _entries())) - linked == set()


def test_words_are_linked_at_their_first_use() -> None:
    """A link further down comes too late."""
    late = [
        f"{path.relative_to(ROOT)}: {' '.join(word.split())}"
        for path, word, _, before in _links()
        if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", before, re.IGNORECASE)
    ]

    assert late == []


@pytest.mark.parametrize("word", _entries())
def test_an_entry_leads_on(word: str) -> None:
    """It names the word used elsewhere, code, and a page (that links lead somewhere, another test checks)."""
    _, elsewhere, links = re.split(r"\*Elsewhere\.\* |\*Code:\* ", _entries()[word])
    code, _, page = links.partition("*Page:* ")

    assert elsewhere.strip()
    assert re.search(r"\]\(\.\./\w+/[\w/]+\.py\)", code)
    assert re.search(r"\]\([\w/-]+\.md(#[\w-]+)?\)", page)
