"""The default values of the product, in the words of the vectors of kind ``constants``."""

from __future__ import annotations

from engine.protocols.acking.acker import ACKER_BUCKETS
from engine.protocols.acking.settings import AckingSettings
from engine.protocols.acking.spout_book import SPOUT_BUCKETS
from operators.files.bucketing import BucketingSink
from operators.files.writing import DefaultRollingPolicy
from operators.table.connectors.filesystem_connector import FileSystemConnector
from operators.transactions import CommitRules
from operators.transactions.commit_rules import FLINK_1_15

_LONG_MAX = 2**63 - 1

_TABLE_OPTIONS = {
    "file_size": "sink.rolling-policy.file-size",
    "rollover_interval_ms": "sink.rolling-policy.rollover-interval",
    "check_interval_ms": "sink.rolling-policy.check-interval",
    "partition_default_name": "partition.default-name",
    "commit_trigger": "sink.partition-commit.trigger",
    "commit_delay_ms": "sink.partition-commit.delay",
    "watermark_time_zone": "sink.partition-commit.watermark-time-zone",
    "success_file": "sink.partition-commit.success-file.name",
    "auto_compaction": "auto-compaction",
}


def defaults() -> dict[str, dict[str, object]]:
    rolling, bucketing = DefaultRollingPolicy(), BucketingSink("directory")
    names, rollover_interval_ms = bucketing.names, bucketing.rollover_interval_ms
    options = {option.key: option.default for option in FileSystemConnector().options()}
    return {
        "default_rolling_policy": {
            "max_part_size": rolling.max_part_size_bytes,
            "rollover_interval_ms": rolling.rollover_interval_ms,
            "inactivity_interval_ms": rolling.inactivity_interval_ms,
        },
        "table_connector": {name: options[key] for name, key in _TABLE_OPTIONS.items()},
        "bucketing_sink": {
            "batch_size": bucketing.batch_size_bytes,
            "rollover_interval_ms": _LONG_MAX if rollover_interval_ms is None else rollover_interval_ms,
            "inactive_check_ms": bucketing.inactive_check_interval_ms,
            "inactive_threshold_ms": bucketing.inactive_threshold_ms,
            "async_timeout_ms": bucketing.async_timeout_ms,
            "part_prefix": names.part_prefix,
            "in_progress": [names.in_progress_prefix, names.in_progress_suffix],
            "pending": [names.pending_prefix, names.pending_suffix],
            "valid_length": [names.valid_length_prefix, names.valid_length_suffix],
        },
        "sink_v2": {"committer_retries": CommitRules().max_retries, "legacy_retry_delay_ms": FLINK_1_15.retry_delay_ms},
        "storm": {
            "message_timeout_secs": (AckingSettings().timeout_ns or 0) // 1_000_000_000,
            "acker_buckets": ACKER_BUCKETS,
            "spout_pending_buckets": SPOUT_BUCKETS,
        },
    }
