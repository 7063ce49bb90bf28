"""Short text for any value of a job: one line, of bounded length, the same in every process, harmless to display.

A record may be ten megabytes long, refuse ``repr``, have a default ``repr`` with an address in it, or hold characters
that turn the direction of the text around it. Such characters are written as escapes.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from reprlib import Repr
from typing import Any

from engine.explore.story import value_text

LONGEST = 60
_FEW, _SHORT, _SMALL = 8, 16, 10**12
_LONGEST_TEXT = 400
_HIDDEN = frozenset(("Cc", "Cf", "Co", "Cs", "Zl", "Zp"))
_NEW_LINE = re.compile(r"\s*\n\s*")


class _Short(Repr):
    """``reprlib`` asks each part of a value for its own short form, so a huge value costs no more than a small one."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = limit
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = self.maxdeque = _FEW

    def repr_bytes(self, value: bytes, _level: int) -> str:
        return repr(value) if len(value) <= self.maxstring else f"{value[: self.maxstring // 2]!r}… {len(value):,} B"

    def repr_int(self, value: int, level: int) -> str:
        try:
            return super().repr_int(value, level)
        except ValueError:
            # Python does not print a number of thousands of digits.
            return value_text(value)

    def repr_instance(self, value: Any, _level: int) -> str:
        return value_text(value)


_short = lru_cache(_Short)


def _usual(value: Any) -> str:
    """What ``reprlib`` makes of a short tuple of small values, or of one such value, in a fraction of the time; empty
    for others."""
    if value.__class__ is not tuple:
        return repr(value) if _is_small(value) else ""
    return repr(value) if len(value) <= _FEW and all(map(_is_small, value)) else ""


def _is_small(value: Any) -> bool:
    kind = value.__class__
    if kind is int:
        return bool(-_SMALL < value < _SMALL)
    return kind is float or (kind is str and len(value) <= _SHORT and value.isascii() and value.isprintable())


def shown(value: Any, limit: int = LONGEST) -> str:
    """The value in at most ``limit`` characters."""
    text = clean(_usual(value) or _short(limit).repr(value))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def clean(text: str, limit: int = _LONGEST_TEXT) -> str:
    """Text of a job (names, rows, messages) for display: in one line, cut to ``limit``, with escapes for what cannot be
    seen."""
    if "\n" in text:
        text = _NEW_LINE.sub("; ", text[: 2 * limit])
    short = text if len(text) <= limit else f"{text[: limit - 1]}…"
    if short.isascii() and short.isprintable():
        return short
    return "".join(one if unicodedata.category(one) not in _HIDDEN else _escaped(one) for one in short)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
