"""Tables by options: ``table_source({...}, schema)`` and ``table_sink({...}, schema)``.

The option ``connector`` names the factory that creates them; see ``factories`` and, for the built-in connector,
``filesystem_connector``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from engine.elements.errors import ConfigurationError
from operators.table.connectors.column_formats import AvroTableFormat, OrcTableFormat, ParquetTableFormat
from operators.table.connectors.connector_options import ConfigOption, Options
from operators.table.connectors.factories import (
    ConnectorFactory,
    FormatFactory,
    Registry,
    TableDefinition,
    checked_schema,
    connectors,
    formats,
)
from operators.table.connectors.filesystem_connector import FileSystemConnector
from operators.table.connectors.log_connectors import KafkaConnector, LogConnector
from operators.table.connectors.plain_connectors import BlackholeConnector, DatagenConnector, PrintConnector
from operators.table.connectors.raw_format import RawTableFormat
from operators.table.connectors.table_formats import CsvTableFormat, JsonTableFormat, TextTableFormat
from operators.table.types import NestedType, data_type

CONNECTOR = ConfigOption("connector", "text", "who makes the source or the sink", required=True)
FORMAT = ConfigOption("format", "text", "how records are written in files", required=True)
PARTITION_KEYS = ConfigOption("partition.keys", "list", "columns that are in the paths of files, outermost first")


def table_source(options: Mapping[str, Any], schema: Mapping[str, str]) -> Any:
    """A source of the records of a table, as dicts in the order of ``schema``; for ``Job.source``.

    ``options``  such as ``{"connector": "filesystem", "path": "/data/t", "format": "csv"}``;
    ``schema``   column -> the name of its type, such as ``BIGINT`` or ``DECIMAL(10, 2)``: :mod:`operators.table.types`.

    Raises a ``ConfigurationError`` that lists every error in the options.
    """
    connector, format, table = _resolved(options, schema)
    return connector.create_source(table, format)


def table_sink(options: Mapping[str, Any], schema: Mapping[str, str]) -> Any:
    """A sink into a table, for dicts with the columns of ``schema``; for ``Stream.sink``. See :func:`table_source`."""
    connector, format, table = _resolved(options, schema)
    return connector.create_sink(table, format)


def register_connector(connector: ConnectorFactory, *, replace: bool = False) -> None:
    """Let ``connector`` create the tables with ``"connector": connector.identifier``."""
    connectors.register(connector, replace=replace)


def register_format(format: FormatFactory, *, replace: bool = False) -> None:
    """Let ``format`` read and write the tables with ``"format": format.identifier``."""
    formats.register(format, replace=replace)


def describe_options(connector: str, format: str | None = None) -> str:
    """All options of a connector, and of a format, a line each: type, default, meaning."""
    declared = _declared(connectors.find(connector), None if format is None else formats.find(format))
    return "\n".join(option.described() for option in declared)


def _resolved(
    given: Mapping[str, Any], schema: Mapping[str, str]
) -> tuple[ConnectorFactory, FormatFactory | None, TableDefinition]:
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"the options of a table are a dict, got {type(given).__name__}")
    connector = connectors.find(_name(given, CONNECTOR, connectors))
    format = formats.find(_name(given, FORMAT, formats)) if connector.takes_format() else None
    columns = checked_schema(schema)
    options = Options(given, _declared(connector, format, columns), f"the {connector.identifier} table")
    keys = options[PARTITION_KEYS.key] or ()
    unknown = [key for key in keys if key not in columns]
    options.refuse([f"partition.keys has {key!r}, which is no column of the schema" for key in unknown])
    options.refuse(
        [f"partition.keys has {key!r}, which is {columns[key]}: there is no text for a path" for key in keys
         if columns[key] == "BYTES" or isinstance(data_type(columns[key]), NestedType)]
    )  # fmt: skip
    table = TableDefinition(options, columns, keys)
    if not table.physical:
        options.refuse([f"all of {', '.join(columns)} are partition.keys, so nothing is left for the files"])
    return connector, format, table


def _name(given: Mapping[str, Any], option: ConfigOption, registry: Registry[Any]) -> str:
    value = given.get(option.key)
    if not isinstance(value, str) or not value:
        others = ", ".join(map(repr, given)) or "none"
        said = f"it is {value!r}" if option.key in given else f"the options given are {others}"
        known = " or ".join(map(repr, registry.names()))
        raise ConfigurationError(f"a table needs the option {option.key!r}, {option.meaning}; {said}\n  say {known}")
    return value


def _declared(
    connector: ConnectorFactory, format: FormatFactory | None, columns: Iterable[str] = ("#",)
) -> list[ConfigOption]:
    """All options of a table. One with a ``#`` in its name exists once for each column."""
    declared = [CONNECTOR]
    for option in connector.options():
        many = columns if "#" in option.key else ("",)
        declared += [replace(option, key=option.key.replace("#", column)) for column in many]
    if format is not None:
        declared += [FORMAT, PARTITION_KEYS, *format.options()]
    elif all(option.key != PARTITION_KEYS.key for option in declared):
        declared.append(PARTITION_KEYS)
    return declared


_CONNECTORS: tuple[ConnectorFactory, ...] = (
    FileSystemConnector(), DatagenConnector(), PrintConnector(), BlackholeConnector(), LogConnector(), KafkaConnector(),
)  # fmt: skip
_FORMATS: tuple[FormatFactory, ...] = (
    CsvTableFormat(), JsonTableFormat(), TextTableFormat(), RawTableFormat(), ParquetTableFormat(), AvroTableFormat(),
    OrcTableFormat(),
)  # fmt: skip
for _connector in _CONNECTORS:
    register_connector(_connector)
for _format in _FORMATS:
    register_format(_format)
