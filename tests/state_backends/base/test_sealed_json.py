"""Sealed JSON: reading gives exactly the written value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from state_backends.base import seal_json, unseal_json

TEXTS = st.text(st.characters(codec="utf-8") | st.just("\udcff"), max_size=5)
"""Half a surrogate stands for a byte of a file's name that is no UTF-8."""

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4).filter(lambda name: name != "checksum"), VALUES, max_size=4))
def test_what_is_written_is_read(state: dict[str, object]) -> None:
    """Whatever is in it, as bytes."""
    for indent in (None, 2):
        assert unseal_json(seal_json(state, indent).encode().decode(), indent) == state


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "no JSON object"),
        ('{"a": 1}', "no checksum"),
        ('{"a": 1, "a": 1, "checksum": "0"}', "twice"),
        ('{"a": 1, "checksum": "0"}', "does not match"),
        (seal_json({"a": 1}) + " ", "does not match"),
        (json.dumps(json.loads(seal_json({"a": 1}))), "does not match"),
        ("[" * 100_000, "too deeply"),
    ],
)
def test_what_was_not_written_so_is_refused(text: str, problem: str) -> None:
    """Another value, a blank, a name twice: the error names each."""
    with pytest.raises(ValueError, match=problem):
        unseal_json(text)
