"""Reads the name of a type as it is written in a schema: ``INT``, ``DECIMAL(10, 2)``, ``ARRAY<ROW<a INT, b DATE>>``."""

from __future__ import annotations

import re
from functools import lru_cache

from engine.elements.suggestions import nearest
from operators.table.types.data_types import (
    BooleanType,
    BytesType,
    DataType,
    DecimalType,
    FloatingType,
    StringType,
    WholeType,
)
from operators.table.types.nested_types import ArrayType, MapType, NestedType, RowType
from operators.table.types.time_types import DateType, TimestampType, TimeType

_SIMPLE: dict[str, DataType] = {
    "TINYINT": WholeType("TINYINT", 8), "SMALLINT": WholeType("SMALLINT", 16), "INT": WholeType("INT", 32),
    "BIGINT": WholeType("BIGINT", 64), "FLOAT": FloatingType("FLOAT", 32), "DOUBLE": FloatingType("DOUBLE", 64),
    "BOOLEAN": BooleanType("BOOLEAN"), "STRING": StringType("STRING"), "BYTES": BytesType("BYTES"),
    "DATE": DateType("DATE"),
}  # fmt: skip
_WITH_NUMBERS = {"DECIMAL": 2, "TIME": 1, "TIMESTAMP": 1, "TIMESTAMP_LTZ": 1}
"""How many numbers may stand in brackets."""
_NESTED = ("ARRAY", "MAP", "ROW")
TYPE_NAMES = (*_SIMPLE, "DECIMAL(p, s)", "TIME(p)", "TIMESTAMP(p)", "TIMESTAMP_LTZ(p)", "ARRAY<T>", "MAP<K, V>",
              "ROW<name T, ...>")  # fmt: skip
_KNOWN_AS = {
    "INTEGER": "INT", "LONG": "BIGINT", "BOOL": "BOOLEAN", "VARCHAR": "STRING", "CHAR": "STRING", "TEXT": "STRING",
    "STR": "STRING", "BINARY": "BYTES", "VARBINARY": "BYTES", "NUMERIC": "DECIMAL", "REAL": "FLOAT",
    "DATETIME": "TIMESTAMP", "STRUCT": "ROW", "LIST": "ARRAY",
}  # fmt: skip
_TOKEN = re.compile(r"\s*(?:(\w+|`[^`]+`)|([<>(),]))", re.ASCII)
_MOST_DEEP = 32


class TypeNameError(ValueError):
    """A text is no name of a type; the message says where, and what would be one."""


@lru_cache(maxsize=1024)
def data_type(text: str) -> DataType:
    """The type of this name. Raises :class:`TypeNameError`."""
    tokens = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise TypeNameError(f"there is no place for {text[at:].strip()[0]!r} in it")
        tokens.append(match[1] or match[2])
        at = match.end()
    parser = _Parser(tokens)
    found = parser.type_()
    if parser.tokens:
        raise TypeNameError(f"{parser.tokens[0]!r} comes after the end of {found.name}")
    return found


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self._depth = 0

    def _next(self, what: str) -> str:
        if not self.tokens:
            raise TypeNameError(f"it ends where {what} is expected")
        return self.tokens.pop(0)

    def _expect(self, sign: str) -> None:
        found = self._next(repr(sign))
        if found != sign:
            raise TypeNameError(f"{sign!r} is expected where {found!r} is")

    def type_(self) -> DataType:
        name = self._next("a type").upper()
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in _WITH_NUMBERS:
            return _numbered(name, self._numbers())
        if name in _NESTED:
            self._depth += 1
            if self._depth > _MOST_DEEP:
                raise TypeNameError(f"types are nested more than {_MOST_DEEP} deep")
            self._expect("<")
            found = getattr(self, f"_{name.lower()}")()
            self._expect(">")
            self._depth -= 1
            nested: DataType = found
            return nested
        meant = _KNOWN_AS.get(name) or nearest(name, [*_SIMPLE, *_WITH_NUMBERS, *_NESTED])
        raise TypeNameError(f"types are {', '.join(TYPE_NAMES)}{f'; did you mean {meant}?' if meant else ''}")

    def _numbers(self) -> list[int]:
        if not self.tokens or self.tokens[0] != "(":
            return []
        self.tokens.pop(0)
        numbers = []
        while True:
            number = self._next("a number")
            if not number.isdecimal() or len(number) > 3:
                raise TypeNameError(f"{number!r} is no number of digits")
            numbers.append(int(number))
            sign = self._next("')'")
            if sign == ")":
                return numbers
            if sign != ",":
                raise TypeNameError(f"')' is expected where {sign!r} is")

    def _array(self) -> DataType:
        return ArrayType(self.type_())

    def _map(self) -> DataType:
        key = self.type_()
        if isinstance(key, NestedType):
            raise TypeNameError(f"the key of a MAP is a simple type, not {key.name}")
        self._expect(",")
        return MapType(key, self.type_())

    def _row(self) -> DataType:
        fields: dict[str, DataType] = {}
        while True:
            name = self._next("the name of a field").strip("`")
            if name in fields:
                raise TypeNameError(f"a ROW has the field {name!r} twice")
            if name in ("<", ">", "(", ")", ","):
                raise TypeNameError(f"the name of a field is expected where {name!r} is")
            fields[name] = self.type_()
            if not self.tokens or self.tokens[0] != ",":
                return RowType(fields)
            self.tokens.pop(0)


def _numbered(name: str, numbers: list[int]) -> DataType:
    if len(numbers) > _WITH_NUMBERS[name]:
        raise TypeNameError(f"{name} takes {_WITH_NUMBERS[name]} number{'s' if _WITH_NUMBERS[name] > 1 else ''}")
    if name == "DECIMAL":
        # The defaults of SQL, and of Flink.
        precision, scale = [*numbers, *(10, 0)[len(numbers) :]]
        if not 1 <= precision <= 38 or scale > precision:
            raise TypeNameError(f"DECIMAL({precision}, {scale}) must have 1 to 38 digits, up to all after the point")
        return DecimalType(precision, scale)
    digits = numbers[0] if numbers else (0 if name == "TIME" else 6)
    if digits > 6:
        raise TypeNameError(
            f"{name}({digits}) is finer than a microsecond, with which Python's times end; 6 is the most"
        )
    return TimeType(digits) if name == "TIME" else TimestampType(digits, has_zone=name == "TIMESTAMP_LTZ")
