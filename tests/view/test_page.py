"""The page: one file, nothing fetched, no text of a job that could act."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import unescape

from hypothesis import given, settings, strategies as st

from engine.view import RunFace, run_page, watch
from engine.view.page import page
from engine.view.shown import clean, shown
from examples.teaching import counting
from tests.view.recorded import recorded


@dataclass
class _Rude:
    def __repr__(self) -> str:
        raise ValueError("no")


class _Nameless:
    pass


def test_the_page_fetches_nothing_and_is_small() -> None:
    """The page names no other place, forbids connections, and takes at most 1 MB without its data."""
    text = page("empty", {"runs": []})

    assert len(text.encode()) < 1_000_000
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", text)
    assert not re.search(r"@import|url\((?!#)", text)


def test_the_same_run_gives_the_same_page() -> None:
    """Two recordings of one run give the same page, byte for byte."""
    pages = {run_page("counting", recorded()[0], RunFace("run")) for _ in range(2)}

    assert len(pages) == 1


@given(st.text())
def test_no_text_ends_the_block_of_data(text: str) -> None:
    """Whatever a record says, the data are the same after reading them back."""
    hostile = f"</script><script>{text}"
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page("x", {"runs": [hostile]}), re.S)

    assert found is not None
    assert json.loads(found[1])["runs"] == [hostile]


_PLAIN = st.text() | st.binary() | st.integers() | st.floats()


@settings(max_examples=30)
@given(st.recursive(_PLAIN, lambda inner: st.lists(inner) | st.tuples(inner)))
def test_texts_are_short_and_harmless(value: object) -> None:
    """The text of any value is at most as long as asked for, and has no character that cannot be seen."""
    text = shown(value, 40)

    assert len(text) <= 40
    assert clean(text) == text


def test_values_without_a_short_form() -> None:
    """A huge text, a broken repr, an address and marks of direction have a form that is short and always the same."""
    assert len(shown("x" * 10_000_000)) <= 60
    assert len(shown(b"x" * 10_000_000)) <= 60
    assert "_Rude that cannot be shown" in shown(_Rude())
    assert "int that cannot be shown" in shown((10**5_000,))
    assert shown(_Nameless()) == shown(_Nameless())
    assert "\u202e" not in shown("a\u202eb")
    assert clean("a\u202eb") == "a\\u202eb"


def test_a_cell_of_a_notebook_shows_the_page() -> None:
    """The value of ``watch`` is shown as the whole page, in a frame that takes its text."""
    watched = watch(counting.job(), batch_size=1, faults=["crash:count[0]@after:ack.send#1"])

    shown_in_cell = watched._repr_html_()

    assert watched.result.attempts == 2
    assert shown_in_cell.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert unescape(shown_in_cell.split('"')[1]) == watched.text
