"""Types of dates and times (Flink: ``DateType``, ``TimeType``, ``TimestampType``, ``LocalZonedTimestampType``).

Rules
-----
* ``p`` is the number of digits of a second's fraction, 0 to 6: Python's times end at the microsecond. A value with
  more digits is refused, not cut.
* A TIMESTAMP is a ``datetime`` without a time zone. A TIMESTAMP_LTZ is an instant: a ``datetime`` with a time zone,
  which is turned to UTC.
* As a text a TIMESTAMP is ``2013-01-01 05:17:00.123``, and a TIMESTAMP_LTZ has a ``Z`` after it. With ``iso`` a ``T``
  stands in place of the space (Flink: ``json.timestamp-format.standard``). A fraction of zeros is left out.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

from operators.table.types.data_types import TextualType

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,9})?)?", re.ASCII)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)([ T])(\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?", re.ASCII)


class DateType(TextualType):
    """``DATE``: a ``datetime.date``."""

    def checked(self, value: Any) -> datetime.date:
        if type(value) is not datetime.date:
            raise self.wrong(value)
        return value

    def of_text(self, text: str) -> datetime.date:
        if _DATE.fullmatch(text) is None:
            raise ValueError("a DATE is written as 2013-01-31")
        return datetime.date.fromisoformat(text)

    def arrow(self, pa: Any) -> Any:
        return pa.date32()

    def avro(self, place: str) -> Any:
        return {"type": "int", "logicalType": "date"}


class _FractionType(TextualType):
    """A type with ``p`` digits of a second's fraction."""

    def __init__(self, name: str, digits: int) -> None:
        super().__init__(name)
        self.digits = digits
        self.unit = "ms" if digits <= 3 else "us"

    def _fits(self, value: Any) -> Any:
        if value.microsecond % 10 ** (6 - self.digits) or getattr(value, "nanosecond", 0):
            raise self.wrong(value, f"it has more than {self.digits} digits of a second's fraction")
        return value

    def _shown(self, value: Any) -> str:
        return "milliseconds" if self.unit == "ms" and value.microsecond else "auto"

    def _parsed(self, kind: Any, text: str) -> Any:
        fraction = text.partition(".")[2].rstrip("Z")
        if len(fraction.partition("+")[0].partition("-")[0].rstrip("0")) > self.digits:
            raise self.wrong(text, f"it has more than {self.digits} digits of a second's fraction")
        return kind.fromisoformat(text)


class TimeType(_FractionType):
    """``TIME(p)``: a ``datetime.time`` without a time zone."""

    def __init__(self, digits: int) -> None:
        super().__init__(f"TIME({digits})", digits)

    def checked(self, value: Any) -> datetime.time:
        if type(value) is not datetime.time or value.tzinfo is not None:
            raise self.wrong(value)
        time: datetime.time = self._fits(value)
        return time

    def to_text(self, value: datetime.time) -> str:
        return value.isoformat(self._shown(value))

    def of_text(self, text: str) -> datetime.time:
        if _TIME.fullmatch(text) is None:
            raise ValueError(f"a {self.name} is written as 05:17:00")
        time: datetime.time = self._parsed(datetime.time, text)
        return time

    def arrow(self, pa: Any) -> Any:
        return pa.time32("ms") if self.unit == "ms" else pa.time64("us")

    def avro(self, place: str) -> Any:
        kind, unit = ("int", "millis") if self.unit == "ms" else ("long", "micros")
        return {"type": kind, "logicalType": f"time-{unit}"}


class TimestampType(_FractionType):
    """``TIMESTAMP(p)``, and with a time zone ``TIMESTAMP_LTZ(p)``."""

    def __init__(self, digits: int, *, has_zone: bool) -> None:
        super().__init__(f"TIMESTAMP{'_LTZ' if has_zone else ''}({digits})", digits)
        self.has_zone = has_zone

    def checked(self, value: Any) -> datetime.datetime:
        # pyarrow gives timestamps of ORC as those of pandas, if that is there.
        if not isinstance(value, datetime.datetime) or (value.tzinfo is None and self.has_zone):
            raise self.wrong(value, "it has no time zone" if isinstance(value, datetime.datetime) else "")
        if value.tzinfo is not None and not self.has_zone:
            raise self.wrong(value, "it has a time zone: declare the column TIMESTAMP_LTZ, or remove it")
        stamp: Any = self._fits(value)
        if self.has_zone:
            # Before the fold is dropped: it says which of two equal local times is meant.
            try:
                stamp = stamp.astimezone(datetime.UTC)
            except OverflowError:
                raise self.wrong(value, "in UTC it is outside the years 1 to 9999") from None
        if type(stamp) is not datetime.datetime:
            stamp = stamp.to_pydatetime()
        plain: datetime.datetime = stamp.replace(tzinfo=datetime.UTC) if self.has_zone else stamp.replace(fold=0)
        return plain

    def to_json(self, value: datetime.datetime, *, iso: bool = False) -> str:
        text = value.isoformat("T" if iso else " ", self._shown(value))
        return text.replace("+00:00", "Z") if self.has_zone else text

    def of_json(self, value: Any, *, iso: bool = False) -> datetime.datetime:
        if type(value) is not str:
            raise self.wrong(value)
        return self._of_text(value, "T" if iso else " ")

    def to_text(self, value: datetime.datetime) -> str:
        return self.to_json(value)

    def of_text(self, text: str) -> datetime.datetime:
        return self._of_text(text, " ")

    def _of_text(self, text: str, between: str) -> datetime.datetime:
        match = _STAMP.fullmatch(text)
        if match is None or match[2] != between or (match[5] is not None) != self.has_zone:
            zone = "Z" if self.has_zone else ""
            raise ValueError(f"a {self.name} is written as 2013-01-31{between}05:17:00{zone}")
        stamp: datetime.datetime = self.checked(self._parsed(datetime.datetime, text))
        return stamp

    def arrow(self, pa: Any) -> Any:
        return pa.timestamp(self.unit, "UTC") if self.has_zone else pa.timestamp(self.unit)

    def avro(self, place: str) -> Any:
        unit = "millis" if self.unit == "ms" else "micros"
        return {"type": "long", "logicalType": f"{'' if self.has_zone else 'local-'}timestamp-{unit}"}
