"""``ARRAY``, ``MAP`` and ``ROW``: types made of types (Flink: ``ArrayType``, ``MapType``, ``RowType``).

An ARRAY is a list, a MAP a dict, a ROW a dict with its fields. Elements, values and fields may be null, and so are
fields that are missing; the keys of a map may not. In CSV a nested value is JSON in one field. (Flink separates the
elements by ``;``, one level deep.)
"""

from __future__ import annotations

import decimal
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from operators.table.types.data_types import DataType, StringType


class NestedType(DataType):
    """A type made of types; ``parts`` are those."""

    parts: tuple[DataType, ...]

    @abstractmethod
    def _each(self, value: Any, of: Callable[[DataType, Any], Any]) -> Any:
        """The value with ``of`` applied to its parts, nulls apart."""

    def checked(self, value: Any) -> Any:
        return self._each(value, lambda kind, one: kind.checked(one))

    def to_json(self, value: Any, *, iso: bool = False) -> Any:
        return self._each(value, lambda kind, one: kind.to_json(one, iso=iso))

    def of_json(self, value: Any, *, iso: bool = False) -> Any:
        return self._each(value, lambda kind, one: kind.of_json(one, iso=iso))

    def to_text(self, value: Any) -> str:
        return json.dumps(self.to_json(value), ensure_ascii=False, separators=(",", ":"))

    def of_text(self, text: str) -> Any:
        try:
            value = json.loads(text, parse_float=decimal.Decimal, parse_constant=decimal.Decimal)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self.name} is written as JSON: {error}") from None
        return self.of_json(value)


def has_part(kind: DataType, test: Callable[[DataType], bool]) -> bool:
    """Whether ``test`` holds of a type or of one that it is made of."""
    parts = kind.parts if isinstance(kind, NestedType) else ()
    return test(kind) or any(has_part(part, test) for part in parts)


def is_map_without_text_keys(kind: DataType) -> bool:
    """Whether it is a MAP whose keys are no STRING."""
    return isinstance(kind, MapType) and not isinstance(kind.parts[0], StringType)


class ArrayType(NestedType):
    """``ARRAY<T>``."""

    def __init__(self, element: DataType) -> None:
        super().__init__(f"ARRAY<{element.name}>")
        self.parts = (element,)

    def _each(self, value: Any, of: Callable[[DataType, Any], Any]) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise self.wrong(value)
        [element] = self.parts
        return [None if one is None else of(element, one) for one in value]

    def arrow(self, pa: Any) -> Any:
        return pa.list_(self.parts[0].arrow(pa))

    def avro(self, place: str) -> Any:
        return {"type": "array", "items": ["null", self.parts[0].avro(place)]}


class MapType(NestedType):
    """``MAP<K, V>``. JSON and Avro have only texts as keys."""

    def __init__(self, key: DataType, value: DataType) -> None:
        super().__init__(f"MAP<{key.name}, {value.name}>")
        self.parts = (key, value)

    def _each(self, value: Any, of: Callable[[DataType, Any], Any]) -> dict[Any, Any]:
        key, content = self.parts
        pairs: Any = value.items() if isinstance(value, Mapping) else value
        # Arrow gives a map as a list of pairs.
        if not isinstance(value, Mapping | list) or not all(isinstance(one, tuple) for one in pairs):
            raise self.wrong(value)
        found: dict[Any, Any] = {}
        for name, one in pairs:
            if name is None:
                raise self.wrong(value, "a key is null")
            found[of(key, name)] = None if one is None else of(content, one)
        return found

    def arrow(self, pa: Any) -> Any:
        return pa.map_(self.parts[0].arrow(pa), self.parts[1].arrow(pa))

    def avro(self, place: str) -> Any:
        return {"type": "map", "values": ["null", self.parts[1].avro(place)]}


class RowType(NestedType):
    """``ROW<name T, ...>``."""

    def __init__(self, fields: Mapping[str, DataType]) -> None:
        super().__init__(f"ROW<{', '.join(f'{name} {kind.name}' for name, kind in fields.items())}>")
        self.names, self.parts = tuple(fields), tuple(fields.values())

    def _each(self, value: Any, of: Callable[[DataType, Any], Any]) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise self.wrong(value)
        more = [name for name in value if name not in self.names]
        if more:
            raise self.wrong(value, f"it has no field {more[0]!r}")
        row = {}
        for name, kind in zip(self.names, self.parts, strict=True):
            one = value.get(name)
            row[name] = None if one is None else of(kind, one)
        return row

    def arrow(self, pa: Any) -> Any:
        return pa.struct([(name, kind.arrow(pa)) for name, kind in zip(self.names, self.parts, strict=True)])

    def avro(self, place: str) -> Any:
        fields = [
            {"name": name, "type": ["null", kind.avro(f"{place}_{at}")]}
            for at, (name, kind) in enumerate(zip(self.names, self.parts, strict=True))
        ]
        return {"type": "record", "name": place, "fields": fields}
