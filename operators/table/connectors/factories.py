"""Connectors and formats of tables, found by name.

Rules (Flink: ``FactoryUtil``, ``DynamicTableFactory``)
-------------------------------------------------------
* ``connector`` names the factory of a table's source or sink, ``format`` the factory that reads and writes its records.
  Each declares its options; those of a format begin with its name.
* A name is looked up among the registered factories, then among the entry points of installed distributions, in groups
  ``weirstream.connectors`` and ``weirstream.formats``: objects, or functions without arguments that return one.
* A name can be registered once. To replace a connector of the same name, pass ``replace=True``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Generic, Protocol, TypeVar

from engine.elements.errors import ConfigurationError
from engine.elements.suggestions import nearest
from operators.table.connectors.connector_options import ConfigOption, Options
from operators.table.types import DataType, TypeNameError, data_type

Schema = dict[str, str]
"""Columns in order, each with the name of its type (:mod:`operators.table.types`)."""


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The input of a factory. ``connector`` and ``format`` are among the options."""

    options: Options
    schema: Schema
    partition_keys: tuple[str, ...] = ()

    @property
    def physical(self) -> Schema:
        """The columns in the files: all except the partition columns."""
        return {name: kind for name, kind in self.schema.items() if name not in self.partition_keys}

    @property
    def physical_types(self) -> dict[str, DataType]:
        """Their types."""
        return {name: data_type(kind) for name, kind in self.physical.items()}


def without_partitions(table: TableDefinition) -> TableDefinition:
    """The table, if it has no ``partition.keys``: for connectors without files. Raises ``ConfigurationError``."""
    if table.partition_keys:
        table.options.refuse(["'partition.keys' are columns in the paths of files: there are none here"])
    return table


class FormatFactory(Protocol):
    """Makes the input and output formats of a table's files."""

    identifier: str

    def options(self) -> Sequence[ConfigOption]:
        """The options of the format."""

    def input_format(self, table: TableDefinition) -> Any:
        """A format that ``FileSource`` takes, whose records are dicts of the physical columns."""

    def output_format(self, table: TableDefinition) -> Any:
        """A format that ``FileSink`` takes, for such dicts."""

    # Optional: message_format(table), an object with encode(row) -> bytes and decode(bytes) -> row, for connectors that
    # carry a row in a message of its own, such as ``kafka``.


class ConnectorFactory(Protocol):
    """Makes sources and sinks of tables."""

    identifier: str

    def options(self) -> Sequence[ConfigOption]:
        """The options of the connector, without ``connector`` and those of the format."""

    def takes_format(self) -> bool:
        """Whether there must be a ``format``."""

    def create_source(self, table: TableDefinition, format: FormatFactory | None) -> Any:
        """A source for ``Job.source``."""

    def create_sink(self, table: TableDefinition, format: FormatFactory | None) -> Any:
        """A sink for ``Stream.sink``."""


FactoryT = TypeVar("FactoryT", ConnectorFactory, FormatFactory)


class Registry(Generic[FactoryT]):
    """Factories by name. ``kind``: their name in options and errors."""

    def __init__(self, kind: str, group: str) -> None:
        self._kind, self._group = kind, group
        self._factories: dict[str, FactoryT] = {}

    def register(self, factory: FactoryT, *, replace: bool = False) -> None:
        """Let ``factory`` be found by its ``identifier``. Raises ``ConfigurationError`` if that is taken."""
        name: object = getattr(factory, "identifier", None)
        if not isinstance(name, str) or not name or not callable(getattr(factory, "options", None)):
            raise ConfigurationError(f"{factory!r} is no {self._kind}: it needs an identifier and options()")
        if name in self._factories and not replace:
            raise ConfigurationError(
                f"there is a {self._kind} {name!r} already; register it with replace=True to have another one"
            )
        self._factories[name] = factory

    def names(self) -> list[str]:
        """The names of all factories registered or loaded so far."""
        return sorted(self._factories)

    def find(self, name: str) -> FactoryT:
        """The factory that is registered or installed under a name. Raises ``ConfigurationError``."""
        if name not in self._factories:
            for point in entry_points(group=self._group):
                if point.name == name:
                    found: Any = point.load()
                    self.register(found() if isinstance(found, type) or not hasattr(found, "identifier") else found)
                    break
        if name not in self._factories:
            close = nearest(name, self._factories)
            hint = f"did you mean {close!r}?" if close else f"there are {', '.join(self.names())}"
            raise ConfigurationError(
                f"there is no {self._kind} {name!r}; {hint}\n"
                f"  one of your own is made known with register_{self._kind}(...), or by an entry point in group "
                f"{self._group!r}"
            )
        return self._factories[name]


connectors: Registry[ConnectorFactory] = Registry("connector", "weirstream.connectors")
formats: Registry[FormatFactory] = Registry("format", "weirstream.formats")


def checked_schema(schema: object) -> Schema:
    """Columns with the names of their types in capitals. Raises ``ConfigurationError``."""
    if not isinstance(schema, Mapping) or not schema:
        raise ConfigurationError(
            f"a schema is a dict from column to type, such as {{'name': 'STRING', 'n': 'BIGINT'}}, got {schema!r}"
        )
    checked: Schema = {}
    columns: Mapping[object, object] = schema
    for name, kind in columns.items():
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"the name of a column is a text that is not empty, got {name!r}")
        try:
            checked[name] = data_type(kind if isinstance(kind, str) else "").name
        except TypeNameError as error:
            raise ConfigurationError(f"column {name!r} has type {kind!r}: {error}") from None
    return checked
