"""Reads a partition's time from its values (Flink: ``DefaultPartTimeExtractor``).

* The text is the first value; with a *timestamp pattern* the pattern, in which ``$column`` is replaced by its value,
  column by column in the order of the partition columns. The replacement ignores word boundaries: with columns ``d``
  and ``dh``, ``$d`` also replaces the beginning of ``$dh``.
* Without a *formatter* the text is ``y-M-d``, and perhaps `` H:m:s`` with a fraction, leniently: month 13 is January of
  the next year, day 31 of a shorter month the first of the next, hour 24 midnight. A date alone is its midnight.
* With a formatter (letters as in ``java_time``) the text is a date and a time, or a date, which means
  its midnight.
* The time is local. It becomes an instant by the time zone of the watermarks. If an autumn night has the time twice,
  the earlier instant counts. If a spring night skips the time, it moves forward by the length of the gap.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Protocol

from engine.elements.errors import ConfigurationError
from operators.files.writing import DEFAULT_PARTITION_NAME
from operators.table.partitions.java_time import JavaTimePattern, PatternError, TextError

_LENIENT = re.compile(
    r"([0-9]{1,10})-([0-9]{1,2})-([0-9]{1,2})(?: ([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{1,9}))?)?"
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class PartitionTimeError(ConfigurationError):
    """The values of a partition name no time: records or the extractor's settings do not fit the table."""


class PartitionTimeExtractor(Protocol):
    """Reads the time of a partition. Must be a pure function: two subtasks call it, and again after a restore."""

    def extract(self, columns: Sequence[str], values: Sequence[str]) -> datetime.datetime:
        """The local time, without a time zone. Any error means that the values name none."""


class DefaultPartitionTimeExtractor:
    """See the rules of the module.

    ``timestamp_pattern``    such as ``"$year-$month-$day $hour:00:00"``; ``None`` is the first value;
    ``timestamp_formatter``  such as ``"yyyyMMdd"``; ``None`` is the lenient default.

    Raises :class:`ConfigurationError` for an invalid formatter.
    """

    def __init__(self, timestamp_pattern: str | None = None, timestamp_formatter: str | None = None) -> None:
        self.timestamp_pattern = timestamp_pattern
        self.timestamp_formatter = timestamp_formatter
        try:
            self._formatter = None if timestamp_formatter is None else JavaTimePattern(timestamp_formatter)
        except PatternError as error:
            raise ConfigurationError(f"timestamp_formatter cannot be used: {error}") from None

    def extract(self, columns: Sequence[str], values: Sequence[str]) -> datetime.datetime:
        """See ``PartitionTimeExtractor``. Raises :class:`PartitionTimeError`."""
        if not values:
            raise PartitionTimeError("a partition without values names no time: give the sink partition columns")
        pattern = self.timestamp_pattern
        text = values[0]
        if pattern is not None:
            text = pattern
            for column, value in zip(columns, values, strict=True):
                text = text.replace(f"${column}", value)
        try:
            return self._parse(text)
        except TextError as error:
            read = f"column {columns[0]!r}" if pattern is None else f"timestamp_pattern {pattern!r}"
            partition = ", ".join(f"{column}={value!r}" for column, value in zip(columns, values, strict=True))
            hint = ""
            if DEFAULT_PARTITION_NAME in values:
                hint = f"; {DEFAULT_PARTITION_NAME} stands for null or empty, which names no time at all"
            elif pattern is not None and "$" in text:
                hint = f"; the pattern has a name that is none of the columns {', '.join(map(repr, columns))}"
            raise PartitionTimeError(
                f"the partition of {partition} names no time: {error}\n"
                f"  read    {read}, formatter {self.timestamp_formatter or 'y-M-d[ H:m:s[.fraction]]'!r}\n"
                f"  fix timestamp_pattern or timestamp_formatter of the extractor, or filter such records out{hint}"
            ) from None

    def _parse(self, text: str) -> datetime.datetime:
        if self._formatter is None:
            return _parse_leniently(text)
        date, time = self._formatter.parse(text)
        return datetime.datetime.combine(date, datetime.time()) if time is None else time


def _parse_leniently(text: str) -> datetime.datetime:
    match = _LENIENT.fullmatch(text)
    if match is None:
        raise TextError(f"{text!r} is not of the form y-M-d or y-M-d H:m:s")
    year, month, day, hour, minute, second = (int(match[group] or 0) for group in range(1, 7))
    years, months = divmod(month - 1, 12)
    micros = int((match[7] or "").ljust(9, "0")) // 1000
    try:
        first = datetime.datetime(year + years, months + 1, 1)
        return first + datetime.timedelta(days=day - 1, hours=hour, minutes=minute, seconds=second, microseconds=micros)
    except (ValueError, OverflowError):
        raise TextError(f"{text!r} lies outside the years 1 to 9999") from None


def local_to_epoch_ms(local: datetime.datetime, zone: datetime.tzinfo) -> int:
    """The instant of a local time, in ms since the epoch, rounded down."""
    return (local.replace(tzinfo=zone, fold=0) - _EPOCH) // datetime.timedelta(milliseconds=1)
