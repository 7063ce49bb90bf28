"""The page about formats describes the trace that is written."""

from __future__ import annotations

import re
import typing
from pathlib import Path

from engine.observe.trace_events import TRACE_VERSION, TraceEvent

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text("utf-8")


def test_the_page_lists_every_event_with_its_fields() -> None:
    """Each kind once, all fields in their order, and the version."""
    described: dict[str, list[str]] = {}
    for kinds, fields in re.findall(r"^\| ((?:`[A-Z]\w+`(?:, )?)+) \| (`[a-z].*) \|$", PAGE, flags=re.MULTILINE):
        without_remarks = re.sub(r"\([^)]*\)", "", fields)
        for kind in re.findall(r"`(\w+)`", kinds):
            described[kind] = re.findall(r"`(\w+)`", without_remarks)

    assert described == {kind.__name__: list(kind._fields[1:]) for kind in typing.get_args(TraceEvent)}
    assert f'{{"trace_version": {TRACE_VERSION}}}' in PAGE
