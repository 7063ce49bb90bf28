"""The connectors ``datagen``, ``print`` and ``blackhole``: rows out of nothing, and rows into nothing.

Rules (Flink: ``DataGenTableSourceFactory``, ``PrintTableSinkFactory``, ``BlackHoleTableSinkFactory``)
------------------------------------------------------------------------------------------------------
* A generated row is a function of its number and of ``seed``: a restored job makes the same rows again, and so does
  another parallelism.
* ``fields.#.kind = sequence`` counts from ``start`` to ``end``; the rows end where the shortest sequence does.
* Rows that are printed or dropped are checked against the schema first.
"""

from __future__ import annotations

import datetime
import decimal
import sys
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from operators.basic import DiscardSink, PrintSink, SinkOperator
from operators.sources import GeneratorSource
from operators.table.connectors.connector_options import ConfigOption, Options
from operators.table.connectors.factories import FormatFactory, TableDefinition, without_partitions
from operators.table.connectors.filesystem_connector import SINK_PARALLELISM
from operators.table.connectors.table_rows import RowCheck, Types
from operators.table.types import DataType, NestedType, data_type

_RANDOM, _SEQUENCE = "random", "sequence"
_SEQUENCE_OPTIONS, _RANDOM_OPTIONS = ("start", "end"), ("min", "max", "length", "null-rate")
_DEFAULT_LENGTH = 20
_FIRST_DAY, _DAYS = datetime.date(1970, 1, 1), 24_837
"""Up to the end of 2037."""
_EXACT = decimal.Context(prec=40)
"""Keeps all digits of a DECIMAL, which has up to 38; Python's own context keeps 28."""
_DAY_US = 86_400_000_000


class _Plain:
    """Base of connectors without a format."""

    def takes_format(self) -> bool:
        return False


class DatagenConnector(_Plain):
    """Connector ``datagen``."""

    identifier = "datagen"

    def options(self) -> Sequence[ConfigOption]:
        return (
            ConfigOption("number-of-rows", "number", "how many rows; needed unless there is a sequence"),
            ConfigOption(
                "rows-per-second", "number", "of virtual time; as fast as they are read if it is not given", least=1
            ),
            ConfigOption("splits", "number", "how many subtasks can generate at most", 1, least=1),
            ConfigOption("seed", "number", "other rows for another seed", 0),
            ConfigOption("fields.#.kind", "choice", "how a column is filled", _RANDOM, (_RANDOM, _SEQUENCE)),
            ConfigOption("fields.#.start", "text", "of a sequence"),
            ConfigOption("fields.#.end", "text", "of a sequence, included"),
            ConfigOption("fields.#.min", "text", "the least random number, date or time"),
            ConfigOption("fields.#.max", "text", "the greatest, included except for FLOAT and DOUBLE"),
            ConfigOption("fields.#.length", "number", "of a random STRING, BYTES, ARRAY or MAP", _DEFAULT_LENGTH),
            ConfigOption("fields.#.null-rate", "number", "how many of 100 random values are null", 0),
        )

    def create_source(self, table: TableDefinition, format: FormatFactory | None) -> GeneratorSource:
        """A source whose rows follow from their numbers."""
        options, types = without_partitions(table).options, table.physical_types
        problems: list[str] = []
        fields = {name: _field(name, kind, options, problems) for name, kind in types.items()}
        counts = [count for _, count in fields.values() if count is not None]
        if options["number-of-rows"] is not None:
            counts.append(options["number-of-rows"])
        elif not counts:
            problems.append("'number-of-rows' is missing, and no field is a sequence: the rows would never end")
        options.refuse(problems)
        makers = {name: make for name, (make, _) in fields.items()}

        def make_batch(start: int, stop: int) -> list[Any]:
            return [{name: make(number) for name, make in makers.items()} for number in range(start, stop)]

        return GeneratorSource(make_batch, min(counts), options["splits"], options["rows-per-second"])

    def create_sink(self, table: TableDefinition, format: FormatFactory | None) -> Any:
        """There is none."""
        table.options.refuse(["'datagen' only makes rows; write them with another connector"])


Make = Callable[[int], Any]


def _field(name: str, kind: DataType, options: Options, problems: list[str]) -> tuple[Make, int | None]:
    """How a column is made from the number of a row, and how many values it has at most."""
    is_sequence = options[f"fields.{name}.kind"] == _SEQUENCE
    keys = _RANDOM_OPTIONS if is_sequence else _SEQUENCE_OPTIONS
    for key in options.given_among(f"fields.{name}.{key}" for key in keys):
        problems.append(f"{key!r} does nothing for a {_SEQUENCE if is_sequence else _RANDOM} field")
    if is_sequence:
        return _sequence(name, kind, options, problems)
    bounds = [_bound(name, key, kind, options, problems) for key in ("min", "max")]
    if None not in bounds and bounds[0] > bounds[1]:
        problems.append(f"'fields.{name}.min' is above 'fields.{name}.max'")
        return _nothing, None
    if options[f"fields.{name}.null-rate"] > 100:
        problems.append(f"'fields.{name}.null-rate' is above 100")
    rate, seed = options[f"fields.{name}.null-rate"], options["seed"]
    length = options[f"fields.{name}.length"]

    def make(number: int) -> Any:
        draw = _Draws(f"{seed}/{name}/{number}")
        if rate and draw.below(100) < rate:
            return None
        return _random(kind, draw, length, *bounds)

    return make, None


def _nothing(number: int) -> None:
    return None


def _sequence(name: str, kind: DataType, options: Options, problems: list[str]) -> tuple[Make, int | None]:
    if data_type("BIGINT").plain_type is not kind.plain_type and kind.name != "STRING":
        problems.append(f"'fields.{name}.kind' = 'sequence' is for whole numbers and STRING, not for {kind.name}")
        return _nothing, None
    whole = data_type("BIGINT") if kind.name == "STRING" else kind
    ends = [_bound(name, key, whole, options, problems) for key in _SEQUENCE_OPTIONS]
    if None in ends or ends[0] > ends[1]:
        problems.append(
            f"'fields.{name}.start' and 'fields.{name}.end' must both be given, the end not before the start"
        )
        return _nothing, None
    start = ends[0]
    convert: Callable[[int], Any] = str if kind.name == "STRING" else int
    return lambda number: convert(start + number), ends[1] - start + 1


def _bound(name: str, key: str, kind: DataType, options: Options, problems: list[str]) -> Any:
    text = options[f"fields.{name}.{key}"]
    if text is None:
        return None
    if kind.name in ("BOOLEAN", "STRING", "BYTES") or isinstance(kind, NestedType):
        problems.append(f"'fields.{name}.{key}' is not for {kind.name}")
        return None
    try:
        return kind.of_text(text)
    except ValueError as error:
        problems.append(f"'fields.{name}.{key}' is {text!r}: {error}")
        return None


class _Draws:
    """Numbers that follow from a text, one after the other."""

    def __init__(self, place: str) -> None:
        self._place, self._count = place, 0

    def below(self, bound: int) -> int:
        """A number from 0 up to ``bound``, excluded."""
        self._count += 1
        data = blake2b(f"{self._place}/{self._count}".encode(), digest_size=24).digest()
        return int.from_bytes(data, "big") % bound


def _between(draw: _Draws, least: int, most: int) -> int:
    return least + draw.below(most - least + 1)


def _random(kind: DataType, draw: _Draws, length: int, least: Any = None, most: Any = None) -> Any:
    base = kind.name.partition("(")[0].partition("<")[0]
    if base in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
        whole: Any = kind
        return _between(draw, whole.least if least is None else least, whole.most if most is None else most)
    if base in ("FLOAT", "DOUBLE"):
        low, high = 0.0 if least is None else least, 1.0 if most is None else most
        return kind.checked(low + draw.below(1 << 53) / (1 << 53) * (high - low))
    if base == "DECIMAL":
        return _random_decimal(kind, draw, least, most)
    if base == "BOOLEAN":
        return bool(draw.below(2))
    if base in ("STRING", "BYTES"):
        data = bytes(draw.below(256) for _ in range(length))
        return data if base == "BYTES" else data.hex()[:length]
    if isinstance(kind, NestedType):
        return _random_nested(kind, base, draw, length)
    return _random_time(kind, base, draw, least, most)


def _random_decimal(kind: Any, draw: _Draws, least: Any, most: Any) -> decimal.Decimal:
    greatest = 10**kind.precision - 1
    low, high = (
        default if one is None else int(_EXACT.scaleb(one, kind.scale))
        for one, default in ((least, -greatest), (most, greatest))
    )
    return _EXACT.scaleb(_between(draw, low, high), -kind.scale)


def _random_nested(kind: NestedType, base: str, draw: _Draws, length: int) -> Any:
    if base == "ARRAY":
        return [_random(kind.parts[0], draw, length) for _ in range(length)]
    if base == "MAP":
        return {_random(kind.parts[0], draw, length): _random(kind.parts[1], draw, length) for _ in range(length)}
    row: Any = kind
    return {name: _random(part, draw, length) for name, part in zip(row.names, kind.parts, strict=True)}


def _random_time(kind: Any, base: str, draw: _Draws, least: Any, most: Any) -> Any:
    if base == "DATE":
        days = [(one or default).toordinal() for one, default in ((least, _FIRST_DAY), (most, _day(_DAYS - 1)))]
        return datetime.date.fromordinal(_between(draw, *days))
    unit_us = 10 ** (6 - kind.digits)
    zone = datetime.UTC if base == "TIMESTAMP_LTZ" else None
    origin = datetime.datetime.combine(_FIRST_DAY, datetime.time(), zone)
    if base == "TIME":
        least, most = (one and datetime.datetime.combine(_FIRST_DAY, one) for one in (least, most))
    span = _DAY_US if base == "TIME" else _DAYS * _DAY_US
    micro = datetime.timedelta(microseconds=1)
    low, high = (default if one is None else (one - origin) // micro for one, default in ((least, 0), (most, span - 1)))
    moment = origin + datetime.timedelta(microseconds=_between(draw, -(-low // unit_us), high // unit_us) * unit_us)
    return moment.time() if base == "TIME" else moment


def _day(number: int) -> datetime.date:
    return _FIRST_DAY + datetime.timedelta(days=number)


class PrintConnector(_Plain):
    """Connector ``print``."""

    identifier = "print"

    def options(self) -> Sequence[ConfigOption]:
        return (
            ConfigOption("print-identifier", "text", "what is put before each row"),
            ConfigOption(
                "standard-error", "boolean", "whether rows go to standard error, not to standard output", False
            ),
            SINK_PARALLELISM,
        )

    def create_source(self, table: TableDefinition, format: FormatFactory | None) -> Any:
        """There is none."""
        table.options.refuse(["'print' only writes rows; read them with another connector"])

    def create_sink(self, table: TableDefinition, format: FormatFactory | None) -> CheckedSink:
        """A sink that prints rows."""
        options = table.options
        write = _to_standard_error if options["standard-error"] else None
        return CheckedSink(PrintSink(write, identifier=options["print-identifier"] or ""), table)


def _to_standard_error(text: str) -> None:
    sys.stderr.write(text)


class BlackholeConnector(_Plain):
    """Connector ``blackhole``."""

    identifier = "blackhole"

    def options(self) -> Sequence[ConfigOption]:
        return (SINK_PARALLELISM,)

    def create_source(self, table: TableDefinition, format: FormatFactory | None) -> Any:
        """There is none."""
        table.options.refuse(["'blackhole' only takes rows; read them with another connector"])

    def create_sink(self, table: TableDefinition, format: FormatFactory | None) -> CheckedSink:
        """A sink that drops rows."""
        return CheckedSink(DiscardSink(), table)


class CheckedSink:
    """A simple sink whose rows are checked before it gets them."""

    def __init__(self, sink: PrintSink | DiscardSink, table: TableDefinition) -> None:
        self.name = sink.name
        self._sink, self._types = sink, without_partitions(table).physical_types
        self.parallelism: int | None = table.options[SINK_PARALLELISM.key]

    def create_operator(self) -> Operator:
        return _CheckedSinkOperator(self._sink.create_operator(), self._types)


class _CheckedSinkOperator(SinkOperator):
    def __init__(self, sink: Operator, types: Types) -> None:
        self._sink, self._check = sink, RowCheck(types)
        self.one_process = sink.one_process

    def open(self) -> None:
        self._sink.setup(self.context, self.output)

    def process_batch(self, batch: Batch) -> None:
        rows = []
        for record in batch.values:
            try:
                rows.append(self._check(record))
            except ValueError as error:
                raise self.user_error("schema", record, error) from error
        self._sink.process_batch(Batch(rows))
