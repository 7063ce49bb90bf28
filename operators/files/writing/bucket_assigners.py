"""Which bucket a record goes to (Flink: ``BucketAssigner``).

There are three kinds:

* ``BasePathBucketAssigner``: one bucket, the sink's directory itself;
* ``DateTimeBucketAssigner``: by the processing time at which the record is written, in the letters of Java's
  ``DateTimeFormatter``;
* a function of the record, for everything in the record.

Your own assigner may also use the time of the record, the watermark and the clock. With the clock, a record that is
written again after a failure may go to another bucket than before; committed records stay where they are.

Sources: ``BucketAssigner``, ``DateTimeBucketAssigner``, ``BasePathBucketAssigner``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import partial
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, shorten
from operators.files.writing.bucket import check_bucket_id
from operators.files.writing.part_files import RecordError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")


class BucketContext(NamedTuple):
    """What an assigner may use beside the record; times in ms since the epoch.

    ``timestamp_ms``  the event time of the record, ``None`` when the stream carries none;
    ``watermark_ms``  the sink's watermark, the smallest number there is before the first one.
    """

    processing_time_ms: int
    watermark_ms: int
    timestamp_ms: int | None


class BucketAssigner:
    """Base of all assigners."""

    def bucket_of(self, record: Any, context: BucketContext) -> str:
        """The bucket of ``record``: a relative path without hidden parts, ``""`` for the sink's directory itself."""
        raise TypeError(f"{type(self).__name__} does not say which bucket a record goes to")

    def buckets_of(self, batch: Batch, processing_time_ms: int, watermark_ms: int) -> str | list[str]:
        """The bucket of each record of ``batch``, or the one of all of them. Raises ``RecordError``."""
        ids: list[str] = []
        stamps = batch.timestamps
        try:
            for position, record in enumerate(batch.values):
                stamp = None if stamps is None else stamps[position]
                bucket = self.bucket_of(record, BucketContext(processing_time_ms, watermark_ms, stamp))
                ids.append(check_bucket_id(bucket))
        except Exception as error:
            raise RecordError(len(ids), batch.values[len(ids)], error) from error
        return ids


class BasePathBucketAssigner(BucketAssigner):
    """Assigns every record to the sink's directory itself."""

    def bucket_of(self, record: Any, context: BucketContext) -> str:
        """The empty path."""
        return ""

    def buckets_of(self, batch: Batch, processing_time_ms: int, watermark_ms: int) -> str | list[str]:
        """One path for all records."""
        return ""


class FunctionBucketAssigner(BucketAssigner):
    """Assigns records by a function."""

    def __init__(self, function: Callable[[Any], str]) -> None:
        if not callable(function):
            raise ConfigurationError(
                f"bucket is {shorten(function)}; it must be a function of the record, such as"
                " lambda row: partition_path(day=row['day'])"
            )
        self._function = function
        self._checked: dict[str, None] = {}

    def bucket_of(self, record: Any, context: BucketContext) -> str:
        """The result of the function."""
        return self._function(record)

    def buckets_of(self, batch: Batch, processing_time_ms: int, watermark_ms: int) -> str | list[str]:
        """Each path is checked once."""
        ids: list[str] = []
        known = self._checked
        try:
            ids.extend(map(self._function, batch.values))
            if len(ids) != len(batch.values):
                raise StopIteration("the function let a StopIteration escape")
        except Exception as error:
            raise RecordError(len(ids), batch.values[len(ids)], error) from error
        try:
            distinct = dict.fromkeys(ids)
            new = [bucket for bucket in distinct if bucket not in known]
            for bucket in new:
                check_bucket_id(bucket)
        except (TypeError, ValueError) as error:
            position = next(at for at, bucket in enumerate(ids) if not _is_bucket(bucket))
            raise RecordError(position, batch.values[position], error) from error
        if len(known) > _MAX_KNOWN:
            known.clear()
        known.update(dict.fromkeys(new))
        return ids if len(distinct) > 1 else ids[0]


_MAX_KNOWN = 10_000
"""Number of buckets remembered as checked; an endless stream may have any number of buckets."""


def _is_bucket(bucket: object) -> bool:
    try:
        check_bucket_id(bucket)
    except (TypeError, ValueError):
        return False
    return True


class DateTimeBucketAssigner(BucketAssigner):
    """By processing time: ``"2018-08-03--23"`` and so on.

    ``format``     in the letters of Java's ``DateTimeFormatter``: ``yyyy`` ``uuuu`` ``yy`` year, ``MM`` ``M`` ``MMM``
                   ``MMMM`` month, ``dd`` ``d`` day of the month, ``DDD`` of the year, ``EEE`` ``EEEE`` of the week,
                   ``HH`` ``H`` hour, ``hh`` ``h`` of the half day, ``a``, ``mm`` ``m``, ``ss`` ``s``, ``S``... fraction
                   of the second; text in ``'quotes'``, other signs as they are;
    ``time_zone``  a name of the tz database, or an offset such as ``GMT+08:00``; by default UTC, not the machine's time
                   zone.
    """

    def __init__(self, format: str = "yyyy-MM-dd--HH", time_zone: str = "UTC") -> None:
        self.format = _checked_format(format)
        self.time_zone = time_zone
        self._zone = zone_of(time_zone)
        self._fields = _compiled(format)
        self._last: tuple[int, str] | None = None

    def bucket_of(self, record: Any, context: BucketContext) -> str:
        """The bucket of this instant."""
        return self.bucket_at(context.processing_time_ms)

    def buckets_of(self, batch: Batch, processing_time_ms: int, watermark_ms: int) -> str | list[str]:
        """The same for all."""
        if self._last is None or self._last[0] != processing_time_ms:
            bucket = self.bucket_at(processing_time_ms)
            try:
                check_bucket_id(bucket)
            except ValueError as error:
                raise RecordError(0, batch.values[0], error) from error
            self._last = (processing_time_ms, bucket)
        return self._last[1]

    def bucket_at(self, time_ms: int) -> str:
        """The bucket of an instant, in ms since the epoch."""
        moment = (_EPOCH + timedelta(milliseconds=time_ms)).astimezone(self._zone)
        return "".join([field if isinstance(field, str) else field(moment) for field in self._fields])


def _checked_format(format: object) -> str:
    if not isinstance(format, str) or not format:
        raise ConfigurationError(f"format is {format!r}; it must be a pattern such as 'yyyy-MM-dd--HH'")
    return format


def zone_of(name: object) -> tzinfo:
    """The time zone of that name (``"UTC"``, ``"Asia/Shanghai"``, ``"GMT+08:00"``).

    Raises :class:`ConfigurationError` when there is none.
    """
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    if match := _OFFSET.fullmatch(str(name)):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        if offset <= timedelta(hours=18):
            return timezone(-offset if match[1] == "-" else offset)
    if isinstance(name, str) and name:
        # An unknown name, one that is a path, and one that is a directory of the database.
        with suppress(ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo(name)
    raise ConfigurationError(
        f"there is no time zone {name!r}\n"
        "  give a name of the time zone database, such as 'Europe/Berlin', or an offset, such as 'GMT+08:00'"
    )


_Field = Callable[[datetime], str]

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

JAVA_TOKEN = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|.", re.DOTALL)
"""A part of a pattern of ``DateTimeFormatter``: equal letters, a quoted text, or any other sign."""

_NUMBERS: dict[str, tuple[Callable[[datetime], int], int]] = {
    "y": (lambda moment: moment.year, 9),
    "u": (lambda moment: moment.year, 9),
    "M": (lambda moment: moment.month, 2),
    "L": (lambda moment: moment.month, 2),
    "d": (lambda moment: moment.day, 2),
    "D": (lambda moment: moment.timetuple().tm_yday, 3),
    "H": (lambda moment: moment.hour, 2),
    "k": (lambda moment: moment.hour or 24, 2),
    "K": (lambda moment: moment.hour % 12, 2),
    "h": (lambda moment: moment.hour % 12 or 12, 2),
    "m": (lambda moment: moment.minute, 2),
    "s": (lambda moment: moment.second, 2),
}
"""By letter: the number, and to how many digits it may be padded."""


def _compiled(format: str) -> list[str | _Field]:
    """The pattern as text and functions of the instant. Raises ``ConfigurationError``."""
    fields: list[str | _Field] = []
    for match in JAVA_TOKEN.finditer(format):
        token, quoted = match.group(), match[2]
        if quoted is not None:
            fields.append(quoted.replace("''", "'") or "'")
        elif token == "'":
            raise _bad_format(format, "a quote has no end")
        elif token in "[]{}#":
            raise _bad_format(format, f"{token!r} is reserved, and needs quotes as text")
        else:
            fields.append(_field(format, token[0], len(token)) if match[1] else token)
    return fields


def _field(format: str, letter: str, length: int) -> _Field:
    if letter in "yu" and length == 2:
        return lambda moment: f"{moment.year % 100:02}"
    if letter in "ML" and 3 <= length <= 4:
        return lambda moment: MONTHS[moment.month - 1][: 3 if length == 3 else None]
    if letter == "E" and length <= 4:
        return lambda moment: DAYS[moment.weekday()][: 3 if length <= 3 else None]
    if letter == "a" and length == 1:
        return lambda moment: "AM" if moment.hour < 12 else "PM"
    if letter == "S" and length <= 9:
        return lambda moment: f"{moment.microsecond:06}000"[:length]
    if letter in _NUMBERS and length <= _NUMBERS[letter][1]:
        return partial(_padded, _NUMBERS[letter][0], length)
    raise _bad_format(format, f"{letter * length!r} means nothing here")


def _padded(number: Callable[[datetime], int], length: int, moment: datetime) -> str:
    return f"{number(moment):0{length}}"


def _bad_format(format: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"format {format!r} cannot be used for dates: {why}\n"
        "  letters are those of Java's DateTimeFormatter, such as yyyy-MM-dd--HH; text goes into 'quotes'"
    )
