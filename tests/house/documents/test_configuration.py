"""The page of settings is the one that the table of settings gives."""

from __future__ import annotations

from engine.runtime.config import SETTINGS
from tests.house.documents.configuration import GROUPS, PAGE, page


def test_the_page_of_settings_is_current() -> None:
    """``make docs`` writes it."""
    assert PAGE.read_text("utf-8") == page(), "write it anew: make docs"


def test_the_page_has_every_setting_once() -> None:
    """In a group of its own kind."""
    assert {one.owner for one in SETTINGS.values()} == {owner for owner, _ in GROUPS}
    assert all(page().count(f"| `{name}` | ") >= 1 for name in SETTINGS)
