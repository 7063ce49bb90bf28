"""DDL schemas ("carrier string, delay int, ts timestamp") as Arrow schemas, without Spark: sinks run on executors, and
in simulations by the thousand."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from spark_bridge.errors import SparkBridgeError

_WORDS = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:]))")
_NAMES: dict[str, str] = {
    "boolean": "bool", "tinyint": "int8", "byte": "int8", "smallint": "int16", "short": "int16", "int": "int32",
    "integer": "int32", "bigint": "int64", "long": "int64", "float": "float32", "real": "float32",
    "double": "float64", "string": "string", "binary": "binary", "date": "date32",
}  # fmt: skip


class _Reader:
    """Reads words from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def next(self) -> str:
        found = _WORDS.match(self._text, self._at)
        if found is None:
            rest = self._text[self._at :].strip()
            raise ValueError(f"{rest!r} is not expected here" if rest else "it ends too early")
        self._at = found.end()
        quoted, word, sign = found.groups()
        return str(quoted.replace("``", "`")) if quoted is not None else str(word or sign)

    def takes(self, *words: str) -> bool:
        """Whether these words come next, in any case; then they are read."""
        before = self._at
        for word in words:
            if self.is_over or self.next().lower() != word:
                self._at = before
                return False
        return True

    def expect(self, word: str) -> None:
        if not self.takes(word):
            raise ValueError(f"there must be {word!r} before {self._text[self._at :].strip()!r}")

    @property
    def is_over(self) -> bool:
        return not self._text[self._at :].strip()

    def listed(self, read: Callable[[], Any]) -> list[Any]:
        found = [read()]
        while self.takes(","):
            found.append(read())
        return found


def schema_of(ddl: object) -> Any:
    """The ``pyarrow.Schema`` of a DDL string; a ``pyarrow.Schema`` is one already.

    Raises:
        SparkBridgeError: it is none, or a name is in it twice.
    """
    import pyarrow as pa

    if isinstance(ddl, pa.Schema):
        fields: list[Any] = list(ddl)
    elif not isinstance(ddl, str):
        raise SparkBridgeError(f"schema= is {ddl!r}: give a DDL string such as 'carrier string, delay int'")
    else:
        reader = _Reader(ddl)
        try:
            fields = reader.listed(lambda: _field(reader))
            if not reader.is_over:
                raise ValueError(f"{reader.next()!r} is not expected here")
        except ValueError as error:
            raise SparkBridgeError(
                f"{ddl!r} is not a schema: {error}. Write for example: 'carrier string, delay int, ts timestamp'."
            ) from None
    names = [field.name for field in fields]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated or not fields:
        why = f"the column {repeated[0]!r} appears twice" if repeated else "it has no column"
        raise SparkBridgeError(f"{ddl!r} is not a schema: {why}.")
    return pa.schema(fields)


def _field(reader: _Reader) -> Any:
    import pyarrow as pa

    name = reader.next()
    reader.takes(":")
    kind = _type(reader)
    return pa.field(name, kind, nullable=not reader.takes("not", "null"))


def _type(reader: _Reader) -> Any:
    import pyarrow as pa

    word = reader.next().lower()
    if word in _NAMES:
        return pa.type_for_alias(_NAMES[word])
    if word in ("timestamp", "timestamp_ltz"):
        return pa.timestamp("us", tz="UTC")
    if word == "timestamp_ntz":
        return pa.timestamp("us")
    if word in ("decimal", "dec", "numeric"):
        return pa.decimal128(*_digits(reader))
    if word in ("array", "map", "struct"):
        reader.expect("<")
        kind = _nested(reader, word)
        reader.expect(">")
        return kind
    raise ValueError(f"{word!r} is no type of a column")


def _nested(reader: _Reader, word: str) -> Any:
    import pyarrow as pa

    if word == "array":
        return pa.list_(_type(reader))
    if word == "struct":
        return pa.struct(reader.listed(lambda: _field(reader)))
    key = _type(reader)
    reader.expect(",")
    return pa.map_(key, _type(reader))


def _digits(reader: _Reader) -> tuple[int, int]:
    if not reader.takes("("):
        return 10, 0
    numbers = [int(one) for one in reader.listed(reader.next)]
    reader.expect(")")
    precision, scale = (*numbers, 0)[:2]
    if not 0 < precision <= 38 or not 0 <= scale <= precision or len(numbers) > 2:
        raise ValueError(f"decimal{tuple(numbers)} has no such digits: 1 to 38, and no more of them after the point")
    return precision, scale
