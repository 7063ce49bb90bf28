"""The connectors ``log`` and ``kafka``: tables in a log on disk, and in a topic of Kafka.

Rules (Flink: ``KafkaDynamicTableFactory``)
-------------------------------------------
* A log on disk holds rows as they are, so it takes no format. Kafka holds bytes: ``format`` makes a message of a row.
* A row of another type is an error of the sink, and of the source.
* Both sources are bounded only if asked: ``scan.bounded.mode = latest-offset`` ends where the topic ends now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from operators.log.connectors import LogSink, LogSource
from operators.log.disk import DiskLog
from operators.log.kafka import KafkaSink, KafkaSource
from operators.log.port import AT_LEAST_ONCE, DELIVERIES, EXACTLY_ONCE
from operators.table.connectors.connector_options import ConfigOption, Options
from operators.table.connectors.factories import FormatFactory, TableDefinition, without_partitions
from operators.table.connectors.filesystem_connector import SINK_PARALLELISM
from operators.table.connectors.table_rows import RowCheck

_STARTS = {"earliest-offset": "earliest", "latest-offset": "latest"}
_TOPIC = ConfigOption("topic", "text", "the name of the topic", required=True)
_GROUP = ConfigOption("properties.group.id", "text", "the group that offsets of completed checkpoints are committed to")
_PREFIX = ConfigOption("sink.transactional-id-prefix", "text", "of the names of transactions, one for each job and run")
_BOUNDED = ConfigOption(
    "scan.bounded.mode", "choice", "where the source ends", "unbounded", ("unbounded", "latest-offset")
)
_DISCOVERY = ConfigOption(
    "scan.topic-partition-discovery.interval", "duration", "how often an unbounded source looks for new partitions"
)
_EXISTING = ConfigOption(
    "sink.existing", "choice", "what to do with records that another run has committed", "fail", ("fail", "append")
)
_ISOLATION = ConfigOption(
    "scan.isolation", "choice", "whether records of open transactions are read", "read_committed",
    ("read_committed", "read_uncommitted"),
)  # fmt: skip


def _startup(*more: str) -> ConfigOption:
    modes = (*_STARTS, *more)
    return ConfigOption("scan.startup.mode", "choice", "where the source begins", "earliest-offset", modes)


def _delivery(default: str) -> ConfigOption:
    return ConfigOption(
        "sink.delivery-guarantee", "choice", "what the sink promises after a failure", default, tuple(DELIVERIES)
    )


def _is_bounded(options: Options) -> bool:
    return bool(options["scan.bounded.mode"] == "latest-offset")


def _discovery_ms(options: Options) -> int | None:
    interval_ms: int | None = options[_DISCOVERY.key]
    if interval_ms == 0 or (interval_ms is not None and _is_bounded(options)):
        options.refuse([f"{_DISCOVERY.key!r} is for unbounded sources, and more than 0: leave it out"])
    return interval_ms


def _refuse_idle_names(options: Options) -> None:
    if options["sink.delivery-guarantee"] != EXACTLY_ONCE:
        given = options.given_among(key for key in (_EXISTING.key, _PREFIX.key) if options.declares(key))
        options.refuse([f"{key!r} does nothing unless 'sink.delivery-guarantee' = 'exactly-once'" for key in given])


class LogConnector:
    """Connector ``log``: a topic of a log on disk."""

    identifier = "log"

    def options(self) -> Sequence[ConfigOption]:
        return (
            ConfigOption("path", "text", "the directory of the log; of a sink below the run's output", required=True),
            _TOPIC,
            ConfigOption("partitions", "number", "of a topic that the sink makes", 1, least=1),
            _startup("timestamp"),
            ConfigOption("scan.startup.timestamp-millis", "number", "begin with what was appended then or later"),
            _BOUNDED,
            _DISCOVERY,
            _ISOLATION,
            _GROUP,
            _delivery(EXACTLY_ONCE),
            _EXISTING,
            _PREFIX,
            SINK_PARALLELISM,
        )

    def takes_format(self) -> bool:
        return False

    def create_source(self, table: TableDefinition, format: FormatFactory | None) -> LogSource:
        """A ``LogSource`` of rows."""
        options = without_partitions(table).options
        mode, at_ms = options["scan.startup.mode"], options["scan.startup.timestamp-millis"]
        if (mode == "timestamp") != (at_ms is not None):
            options.refuse(["'scan.startup.mode' = 'timestamp' and 'scan.startup.timestamp-millis' need each other"])
        return LogSource(
            options["path"],
            options["topic"],
            isolation=options["scan.isolation"],
            start=_STARTS.get(mode, "earliest"),
            start_at_ms=at_ms,
            bounded=_is_bounded(options),
            discovery_interval_ms=_discovery_ms(options),
            group=options["properties.group.id"],
            value=RowCheck(table.physical_types),
        )

    def create_sink(self, table: TableDefinition, format: FormatFactory | None) -> LogSink:
        """A ``LogSink`` of rows."""
        options = without_partitions(table).options
        _refuse_idle_names(options)
        sink = LogSink(
            options["topic"],
            log=DiskLog(options["path"]),
            partitions=options["partitions"],
            value=RowCheck(table.physical_types),
            delivery=options["sink.delivery-guarantee"],
            existing=options["sink.existing"],
            transactional_id_prefix=options["sink.transactional-id-prefix"],
        )
        sink.parallelism = options[SINK_PARALLELISM.key]
        return sink


class KafkaConnector:
    """Connector ``kafka``: a topic of Kafka (extra ``kafka``)."""

    identifier = "kafka"

    def options(self) -> Sequence[ConfigOption]:
        return (
            _TOPIC,
            ConfigOption("properties.bootstrap.servers", "text", "host:port, with ',' between several", required=True),
            ConfigOption("partitions", "number", "of the topic, for the sink", 1, least=1),
            _startup(),
            _BOUNDED,
            _DISCOVERY,
            _ISOLATION,
            _GROUP,
            _delivery(AT_LEAST_ONCE),
            _PREFIX,
            SINK_PARALLELISM,
        )

    def takes_format(self) -> bool:
        return True

    def create_source(self, table: TableDefinition, format: FormatFactory | None) -> KafkaSource:
        """A ``KafkaSource`` of rows."""
        options, messages = table.options, _messages(table, format)
        return KafkaSource(
            options["properties.bootstrap.servers"],
            options["topic"],
            value=messages.decode,
            isolation=options["scan.isolation"],
            start=_STARTS[options["scan.startup.mode"]],
            bounded=_is_bounded(options),
            discovery_interval_ms=_discovery_ms(options),
            group=options["properties.group.id"],
        )

    def create_sink(self, table: TableDefinition, format: FormatFactory | None) -> KafkaSink:
        """A ``KafkaSink`` of rows."""
        options = table.options
        _refuse_idle_names(options)
        if options["sink.delivery-guarantee"] == EXACTLY_ONCE and not options.is_given(_PREFIX.key):
            options.refuse(
                [f"'exactly-once' needs {_PREFIX.key!r}, a name that no other job or run on the cluster has"]
            )
        encode: Callable[[Any], bytes] = _messages(table, format).encode
        sink = KafkaSink(
            options["properties.bootstrap.servers"],
            options["topic"],
            value=encode,
            partitions=options["partitions"],
            delivery=options["sink.delivery-guarantee"],
            transactional_id_prefix=options["sink.transactional-id-prefix"],
        )
        sink.parallelism = options[SINK_PARALLELISM.key]
        return sink


def _messages(table: TableDefinition, format: FormatFactory | None) -> Any:
    assert format is not None, "the connector takes one"
    make: Any = getattr(format, "message_format", None)
    if make is None:
        table.options.refuse([f"format {format.identifier!r} is for files: use 'json', 'csv', 'avro' or 'raw'"])
    lenient = f"{format.identifier}.ignore-parse-errors"
    if table.options.declares(lenient) and table.options[lenient]:
        table.options.refuse([f"{lenient!r} is for files: a message that cannot be read ends the job"])
    return make(without_partitions(table))
