"""JSON files for people and programs: the last member is a checksum of the text before it.

A file counts as unchanged only if writing its content again gives the same text. So every changed byte is found, in a
space, a digit or the name of a key; so are a key that is given twice, and missing or additional text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

CHECKSUM = "checksum"


def seal_json(state: Mapping[str, Any], indent: int | None = 2) -> str:
    """The text of a file that holds these names with their values."""
    assert CHECKSUM not in state
    checksum = blake2b(_text(state, indent).encode(), digest_size=16).hexdigest()
    return _text({**state, CHECKSUM: checksum}, indent) + "\n"


def parse_json(text: str) -> dict[str, Any]:
    """The names and values in a text, the checksum among them if there is one; nothing is checked.

    :raises ValueError: when it is no JSON, no object, or has a name twice
    """
    try:
        state = json.loads(text, object_pairs_hook=_each_once)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(state, dict):
        raise ValueError("it is no JSON object")
    return state


def unseal_json(text: str, indent: int | None = 2) -> dict[str, Any]:
    """The inverse of :func:`seal_json`.

    :raises ValueError: when it did not write exactly this text
    """
    state = parse_json(text)
    if CHECKSUM not in state:
        raise ValueError("it has no checksum")
    del state[CHECKSUM]
    if seal_json(state, indent) != text:
        raise ValueError("its checksum does not match")
    return state


def _text(state: Mapping[str, Any], indent: int | None) -> str:
    text = json.dumps(state, indent=indent, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        # The name of a file that is no UTF-8.
        return json.dumps(state, indent=indent)
    return text


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    state = dict(pairs)
    if len(state) < len(pairs):
        raise ValueError("a name is in it twice")
    return state
