"""Reads times by patterns of letters (Java: ``DateTimeFormatter.ofPattern`` and its parsing rules).

Known are ``y u`` year, ``M L`` month, ``d`` day of the month, ``D`` day of the year, ``H k K h`` hour with ``a`` (AM or
PM), ``m`` minute, ``s`` second, ``S`` fraction, ``n`` nanosecond, ``A`` millisecond of the day, month names (``MMM``,
``MMMM``) and day names (``E``) in English, ``'text'``, ``''``, optional parts in ``[ ]``, and any other character for
itself.

* One letter reads as many digits as there are (``d`` reads 3 and 31); two read exactly two, except that ``yy`` is a
  year from 2000 on; ``yyyy`` reads four, and more only after a sign.
* Adjacent numbers (``yyyyMMdd``): the widths of all numbers after the first are reserved first.
* Resolution is Java's *smart* one: day 31 of a shorter month is its last day, hour 24 without minutes or seconds is
  midnight of the next day, all other values must be in range. An hour without minutes is on the hour.
"""

from __future__ import annotations

import calendar
import datetime
import re
from dataclasses import dataclass

from operators.files.writing import DAYS, JAVA_TOKEN, MONTHS

_FIELDS = {
    "y": "year-of-era", "u": "year", "M": "month", "L": "month", "d": "day", "D": "day-of-year", "H": "hour",
    "k": "clock-hour", "K": "hour-of-half", "h": "clock-hour-of-half", "m": "minute", "s": "second", "S": "fraction",
    "n": "nano", "A": "milli-of-day", "a": "half", "E": "weekday",
}  # fmt: skip
_RANGES = {
    "year-of-era": (1, 999_999_999), "year": (-999_999_999, 999_999_999), "month": (1, 12), "day": (1, 31),
    "day-of-year": (1, 366), "hour": (0, 24), "clock-hour": (1, 24), "hour-of-half": (0, 11),
    "clock-hour-of-half": (1, 12), "minute": (0, 59), "second": (0, 59), "nano": (0, 999_999_999),
    "milli-of-day": (0, 86_399_999),
}  # fmt: skip
_DIGITS = re.compile("[0-9]+")
_WIDEST = 19


class PatternError(ValueError):
    """The pattern is invalid."""


class TextError(ValueError):
    """A text does not match the pattern, or names no time."""


@dataclass(frozen=True, slots=True)
class _Literal:
    text: str


@dataclass(frozen=True, slots=True)
class _Number:
    field: str
    narrowest: int
    widest: int
    signed: bool = False
    reserved: int = 0
    """Digits that the adjacent numbers after this one need."""
    base: int = 0


@dataclass(frozen=True, slots=True)
class _Name:
    field: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Optional:
    parts: tuple[_Part, ...]


_Part = _Literal | _Number | _Name | _Optional


class JavaTimePattern:
    """``pattern`` compiled for reading. Raises :class:`PatternError`."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        stack: list[list[_Part]] = [[]]
        for match in JAVA_TOKEN.finditer(pattern):
            token, quoted = match.group(), match[2]
            if token == "[":
                stack.append([])
            elif token == "]":
                if len(stack) == 1:
                    raise PatternError(f"pattern {pattern!r} has a ']' without '['")
                parts = tuple(stack.pop())
                stack[-1].append(_Optional(_with_room(parts)))
            elif quoted is not None:
                stack[-1].append(_Literal(quoted.replace("''", "'") or "'"))
            elif token == "'":
                raise PatternError(f"pattern {pattern!r} has a quote that does not end")
            elif token in "{}#":
                raise PatternError(f"pattern {pattern!r}: {token!r} is reserved, and stands for itself only in quotes")
            else:
                stack[-1].append(self._field(token) if match[1] else _Literal(token))
        while len(stack) > 1:
            # As in Java, an optional part at the end need not be closed.
            parts = tuple(stack.pop())
            stack[-1].append(_Optional(_with_room(parts)))
        self._parts = _with_room(tuple(stack[0]))

    def _field(self, token: str) -> _Part:
        letter, count = token[0], len(token)
        field = _FIELDS.get(letter)
        if field is None:
            raise PatternError(
                f"pattern {self.pattern!r} has the letter {letter!r}, which is not known here\n"
                f"  known are {' '.join(_FIELDS)}; put text in quotes, as in yyyy-MM-dd'T'HH"
            )
        wrong = PatternError(f"pattern {self.pattern!r}: {token!r} has too many letters")
        if letter in "yu":
            if count == 2:
                return _Number(field, 2, 2, base=2000)
            return _Number(field, count, _WIDEST, signed=count > 3) if count > 1 else _Number(field, 1, _WIDEST)
        if letter == "S":
            if count > 9:
                raise wrong
            return _Number(field, count, count)
        if letter in "nA":
            return _Number(field, count, _WIDEST)
        if letter == "a":
            if count > 1:
                raise wrong
            return _Name(field, ("AM", "PM"))
        if letter == "E" or (letter in "ML" and count > 2):
            if count > 4:
                raise wrong
            names = DAYS if letter == "E" else MONTHS
            return _Name(field, names if count == 4 else tuple(name[:3] for name in names))
        if count > (3 if letter == "D" else 2):
            raise wrong
        if letter == "D":
            return _Number(field, count, 3 if count > 1 else _WIDEST)
        return _Number(field, count, 2 if count == 2 else _WIDEST)

    def parse(self, text: str) -> tuple[datetime.date, datetime.datetime | None]:
        """The date that ``text`` names, and the time if it names one too.

        Raises :class:`TextError` when it does not match, names no date, or one that does not exist.
        """
        found: dict[str, int] = {}
        at = _read(self._parts, text, 0, found)
        if at is None or at != len(text):
            raise TextError(f"{text!r} is not of the pattern {self.pattern!r}")
        for field, value in found.items():
            low, high = _RANGES.get(field, (value, value))
            if not low <= value <= high:
                raise TextError(f"{text!r}: the {field} is {value}, which is not from {low} to {high}")
        try:
            date = _date(found)
            if date is None:
                raise TextError(f"{text!r} names no date by the pattern {self.pattern!r}")
            time = _time(found)
            if "weekday" in found and date.weekday() != found["weekday"]:
                raise TextError(f"{text!r}: {date} is a {DAYS[date.weekday()]}")
            return date, None if time is None else datetime.datetime.combine(date, datetime.time()) + time
        except TextError:
            raise
        except (ValueError, OverflowError) as error:
            raise TextError(f"{text!r} names no day in the years 1 to 9999 ({error})") from None


def _with_room(parts: tuple[_Part, ...]) -> tuple[_Part, ...]:
    """The first of adjacent numbers leaves room for those of fixed width after it (Java: adjacent value parsing)."""
    result = list(parts)
    reserved = 0
    for position in range(len(parts) - 1, -1, -1):
        part = parts[position]
        if not isinstance(part, _Number):
            reserved = 0
        elif part.narrowest == part.widest and not part.base:
            reserved += part.widest
        else:
            result[position] = _Number(part.field, part.narrowest, part.widest, part.signed, reserved, part.base)
            reserved = 0
    return tuple(result)


def _read(parts: tuple[_Part, ...], text: str, at: int, found: dict[str, int]) -> int | None:
    """Where the parts end, or ``None`` if they do not match."""
    for part in parts:
        match part:
            case _Literal(literal):
                end: int | None = at + len(literal) if text.startswith(literal, at) else None
            case _Number():
                end = _read_number(part, text, at, found)
            case _Name(field, names):
                fitting = [number for number, name in enumerate(names) if text.startswith(name, at)]
                end = None
                if fitting:
                    number = fitting[0]
                    end = at + len(names[number])
                    if not _put(found, field, number + (field == "month")):
                        return None
            case _Optional(inner):
                attempt = dict(found)
                end_of_inner = _read(inner, text, at, attempt)
                if end_of_inner is None:
                    continue
                found.update(attempt)
                end = end_of_inner
        if end is None:
            return None
        at = end
    return at


def _read_number(part: _Number, text: str, at: int, found: dict[str, int]) -> int | None:
    sign = text[at : at + 1] if text[at : at + 1] in ("+", "-") else ""
    if sign and not (part.signed or (sign == "-" and part.widest == _WIDEST and part.field.startswith("year"))):
        return None
    digits = _DIGITS.match(text, at + len(sign))
    if digits is None:
        return None
    available = len(digits.group())
    if part.signed and not sign:
        # More digits than the pattern has letters are read only after a sign.
        width = min(available - part.reserved, part.widest) if part.reserved else min(available, part.widest)
        if width > part.narrowest:
            return None
    elif part.reserved:
        width = min(max(available - part.reserved, part.narrowest), part.widest)
    else:
        width = min(available, part.widest)
    if width < part.narrowest or width > available:
        return None
    start = at + len(sign)
    number = int(text[start : start + width])
    if part.field == "fraction":
        number *= 10 ** (9 - width)
    value = part.base + (-number if sign == "-" else number)
    return start + width if _put(found, part.field, value) else None


def _put(found: dict[str, int], field: str, value: int) -> bool:
    """Store a field; a repeated field must have the same value."""
    return found.setdefault(field, value) == value


def _date(found: dict[str, int]) -> datetime.date | None:
    year = found.get("year", found.get("year-of-era"))
    if year is None:
        return None
    if "month" in found and "day" in found:
        month = found["month"]
        return datetime.date(year, month, min(found["day"], calendar.monthrange(year, month)[1]))
    if "day-of-year" in found:
        date = datetime.date(year, 1, 1) + datetime.timedelta(days=found["day-of-year"] - 1)
        if date.year != year:
            raise ValueError(f"{year} has no day {found['day-of-year']}")
        return date
    return None


def _time(found: dict[str, int]) -> datetime.timedelta | None:
    if "milli-of-day" in found:
        return datetime.timedelta(milliseconds=found["milli-of-day"])
    hour = found.get("hour")
    if "clock-hour" in found:
        hour = found["clock-hour"] % 24
    if "half" in found:
        if "clock-hour-of-half" in found:
            hour = found["half"] * 12 + found["clock-hour-of-half"] % 12
        elif "hour-of-half" in found:
            hour = found["half"] * 12 + found["hour-of-half"]
    if hour is None:
        return None
    minute, second = found.get("minute"), found.get("second")
    nano = found.get("fraction", found.get("nano"))
    if (minute is None and (second is not None or nano is not None)) or (second is None and nano is not None):
        return None
    if hour == 24 and (minute or second or nano):
        raise ValueError("hour 24 is midnight and has no minutes")
    return datetime.timedelta(hours=hour, minutes=minute or 0, seconds=second or 0, microseconds=(nano or 0) // 1000)
