"""The example of functions that acknowledge records themselves."""

from __future__ import annotations

import pytest

from examples import acking_functions


def test_the_page_shows_what_the_example_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Three messages per record, a tree with two anchors, an unanchored loss, failed records."""
    acking_functions.main()
    printed = capsys.readouterr().out
    with open("docs/record-acking.md", encoding="utf-8") as page:
        assert printed in page.read()
