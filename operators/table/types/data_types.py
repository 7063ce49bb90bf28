"""Types of numbers, texts and bytes, and the contract of all types (Flink: ``LogicalType``, ``DataTypes``).

Rules
-----
* ``checked`` takes a value of Python and returns the one that records hold, or says why it has not the type. A sink
  checks before it writes, a source checks what it has read. So a value is the same in every format.
* A whole number of the right size is a DOUBLE, a FLOAT or a DECIMAL too. No other type is converted: ``True`` is no
  number, ``7.0`` is no INT.
* A FLOAT is rounded to the nearest number of 32 bits. A DECIMAL has exactly its digits after the point; a value that
  would lose a digit is refused, not rounded (SQL in Flink makes it null).
* In JSON a DECIMAL is written as a text, since many readers keep only the digits of a DOUBLE; a number is read too.
  BYTES are base64, in JSON and in texts (Flink: formats ``json`` and ``csv``).
"""

from __future__ import annotations

import base64
import binascii
import decimal
import math
import re
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from engine.elements.errors import shorten

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_GREATEST_DOUBLE = int(sys.float_info.max)
_INFINITE = (math.inf, -math.inf)


class DataType(ABC):
    """A type of a column. ``None``, the null, is handled by the caller.

    ``name``  as it is written in a schema, such as ``DECIMAL(10, 2)``.
    """

    plain_type: type | None = None
    """The type of its values in JSON, if that holds them as they are."""

    def __init__(self, name: str) -> None:
        self.name = name

    def wrong(self, value: object, why: str = "") -> ValueError:
        """The error for a value that has not the type."""
        return ValueError(f"{shorten(value)} is no {self.name}{why and f': {why}'}")

    @abstractmethod
    def checked(self, value: Any) -> Any:
        """The value as records hold it. Raises ``ValueError``."""

    def holds_as_they_are(self, values: Sequence[Any]) -> bool:
        """Whether all values out of JSON, or nulls, are good as they are. A quick look: it may say no of good ones."""
        return self.plain_type is not None and {*map(type, values)} <= {self.plain_type, type(None)}

    def to_json(self, value: Any, *, iso: bool = False) -> Any:
        """A checked value as JSON. ``iso``: times in ISO 8601, not as in SQL."""
        return value

    def of_json(self, value: Any, *, iso: bool = False) -> Any:
        """The value that JSON stands for. Raises ``ValueError``."""
        return self.checked(value)

    def to_text(self, value: Any) -> str:
        """A checked value as a text, in CSV or in a path."""
        return str(value)

    @abstractmethod
    def of_text(self, text: str) -> Any:
        """The value that a text stands for. Raises ``ValueError``."""

    @abstractmethod
    def arrow(self, pa: Any) -> Any:
        """The type of Arrow, for Parquet and ORC."""

    @abstractmethod
    def avro(self, place: str) -> Any:
        """The schema of Avro. ``place``: a name for records in it."""


class TextualType(DataType):
    """A type whose values are texts in JSON, the same as in CSV."""

    def to_json(self, value: Any, *, iso: bool = False) -> str:
        return self.to_text(value)

    def of_json(self, value: Any, *, iso: bool = False) -> Any:
        if type(value) is not str:
            raise self.wrong(value)
        return self.of_text(value)


class WholeType(DataType):
    """``TINYINT``, ``SMALLINT``, ``INT``, ``BIGINT``: whole numbers of 8, 16, 32 and 64 bits."""

    plain_type = int

    def __init__(self, name: str, bits: int) -> None:
        super().__init__(name)
        self.bits = bits
        self.least, self.most = -(1 << bits - 1), (1 << bits - 1) - 1

    def checked(self, value: Any) -> int:
        if type(value) is not int:
            raise self.wrong(value)
        if not self.least <= value <= self.most:
            raise self.wrong(value, f"it does not fit {self.bits} bits")
        return value

    def holds_as_they_are(self, values: Sequence[Any]) -> bool:
        least, most = self.least, self.most
        return super().holds_as_they_are(values) and all(one is None or least <= one <= most for one in values)

    def of_text(self, text: str) -> int:
        if _INTEGER.fullmatch(text) is None or len(text) > 20 or not self.least <= int(text) <= self.most:
            raise ValueError(f"{_a(self.name)} is a whole number of {self.bits} bits")
        return int(text)

    def arrow(self, pa: Any) -> Any:
        return pa.type_for_alias(f"int{self.bits}")

    def avro(self, place: str) -> Any:
        return "long" if self.bits == 64 else "int"


class FloatingType(DataType):
    """``FLOAT`` and ``DOUBLE``: floating-point numbers of 32 and 64 bits."""

    def __init__(self, name: str, bits: int) -> None:
        super().__init__(name)
        self.bits = bits
        self.plain_type = float if bits == 64 else None

    def checked(self, value: Any) -> float:
        if type(value) is int:
            if not -_GREATEST_DOUBLE <= value <= _GREATEST_DOUBLE:
                raise self.wrong(value, f"it does not fit {self.bits} bits")
            value = float(value)
        if type(value) is not float:
            raise self.wrong(value)
        return value if self.bits == 64 else self._rounded(value)

    def _rounded(self, value: float) -> float:
        try:
            [rounded] = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            raise self.wrong(value, "it does not fit 32 bits") from None
        found: float = rounded
        return found

    def holds_as_they_are(self, values: Sequence[Any]) -> bool:
        return super().holds_as_they_are(values) and not any(one in values for one in _INFINITE)

    def of_json(self, value: Any, *, iso: bool = False) -> float:
        # Beside DECIMAL columns, and in CSV, the reader of JSON keeps all digits of a number.
        is_exact = isinstance(value, decimal.Decimal)
        number = float(value) if is_exact else value
        # In JSON no number is infinite, but one may be too large. In CSV a nested value may say Infinity.
        if number in _INFINITE and not (is_exact and value.is_infinite()):
            raise self.wrong(value, f"it does not fit {self.bits} bits")
        return self.checked(number)

    def to_json(self, value: float, *, iso: bool = False) -> float:
        return float(self.to_text(value))

    def to_text(self, value: float) -> str:
        if self.bits == 64 or not math.isfinite(value):
            return str(value)
        # The shortest text that is read as the same 32 bits: 0.1, not 0.10000000149011612.
        return next(
            str(short) for digits in range(6, 18) if self._rounded(short := float(f"{value:.{digits}g}")) == value
        )

    def of_text(self, text: str) -> float:
        if "_" in text or text != text.strip():
            raise ValueError(f"a {self.name} is a decimal number")
        number = float(text)
        if number in _INFINITE and "inf" not in text.lower():
            raise self.wrong(text, f"it does not fit {self.bits} bits")
        return self.checked(number)

    def arrow(self, pa: Any) -> Any:
        return pa.type_for_alias(f"float{self.bits}")

    def avro(self, place: str) -> Any:
        return "double" if self.bits == 64 else "float"


class DecimalType(DataType):
    """``DECIMAL(p, s)``: ``p`` digits, ``s`` of them after the point."""

    def __init__(self, precision: int, scale: int) -> None:
        super().__init__(f"DECIMAL({precision}, {scale})")
        self.precision, self.scale = precision, scale
        self._unit = decimal.Decimal(1).scaleb(-scale)
        self._context = decimal.Context(prec=precision, traps=[decimal.InvalidOperation, decimal.Inexact])

    def checked(self, value: Any) -> decimal.Decimal:
        number = decimal.Decimal(value) if type(value) is int else value
        if type(number) is not decimal.Decimal or not number.is_finite():
            raise self.wrong(value)
        try:
            found = number.quantize(self._unit, context=self._context)
            # Parquet, Avro and ORC have no negative zero.
            return found or found.copy_abs()
        except decimal.Inexact:
            raise self.wrong(value, f"it has more than {_digits(self.scale)} after the point") from None
        except decimal.InvalidOperation:
            before = _digits(self.precision - self.scale)
            raise self.wrong(value, f"it has more than {before} before the point") from None

    def to_json(self, value: decimal.Decimal, *, iso: bool = False) -> str:
        return self.to_text(value)

    def of_json(self, value: Any, *, iso: bool = False) -> decimal.Decimal:
        return self.of_text(value) if isinstance(value, str) else self.checked(value)

    def to_text(self, value: decimal.Decimal) -> str:
        return f"{value:f}"

    def of_text(self, text: str) -> decimal.Decimal:
        if _DECIMAL.fullmatch(text) is None:
            raise ValueError(f"a {self.name} is a decimal number")
        return self.checked(decimal.Decimal(text))

    def arrow(self, pa: Any) -> Any:
        return pa.decimal128(self.precision, self.scale)

    def avro(self, place: str) -> Any:
        return {"type": "bytes", "logicalType": "decimal", "precision": self.precision, "scale": self.scale}


class BooleanType(DataType):
    """``BOOLEAN``."""

    plain_type = bool

    def checked(self, value: Any) -> bool:
        if type(value) is not bool:
            raise self.wrong(value)
        return value

    def to_text(self, value: bool) -> str:
        return str(value).lower()

    def of_text(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("a BOOLEAN is true or false")
        return text.lower() == "true"

    def arrow(self, pa: Any) -> Any:
        return pa.bool_()

    def avro(self, place: str) -> Any:
        return "boolean"


class StringType(DataType):
    """``STRING``."""

    plain_type = str

    def checked(self, value: Any) -> str:
        if type(value) is not str:
            raise self.wrong(value)
        return value

    def of_text(self, text: str) -> str:
        return text

    def arrow(self, pa: Any) -> Any:
        return pa.string()

    def avro(self, place: str) -> Any:
        return "string"


class BytesType(TextualType):
    """``BYTES``."""

    def checked(self, value: Any) -> bytes:
        if type(value) is not bytes:
            raise self.wrong(value)
        return value

    def to_text(self, value: bytes) -> str:
        return base64.b64encode(value).decode()

    def of_text(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"BYTES are written as base64: {error}") from None

    def arrow(self, pa: Any) -> Any:
        return pa.binary()

    def avro(self, place: str) -> Any:
        return "bytes"


def _a(name: str) -> str:
    return f"an {name}" if name == "INT" else f"a {name}"


def _digits(count: int) -> str:
    return f"{count} digit{'' if count == 1 else 's'}"
