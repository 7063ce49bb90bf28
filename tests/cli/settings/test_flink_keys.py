"""Flink's keys and values: their meaning here, alone and together, and keys without a meaning."""

from __future__ import annotations

import pytest

from engine.cli.settings.flink_keys import KEYS, flink_duration_ns, reason_against, translate
from engine.elements.errors import ConfigurationError
from engine.runtime.config import SETTINGS

CHECKPOINTING = "execution.checkpointing."
DEBLOAT = "taskmanager.network.memory.buffer-debloat."
ON = {f"{DEBLOAT}enabled": "true"}
UNALIGNED = {f"{CHECKPOINTING}unaligned.enabled": "true"}
FIXED, RATE = {"restart-strategy.type": "fixed-delay"}, {"restart-strategy.type": "failure-rate"}
GROWING = {"restart-strategy.type": "exponential-delay"}

# The key, its value, further keys that it needs, and their meaning together.
MEANINGS: list[tuple[str, str, dict[str, str], dict[str, str]]] = [
    (f"{CHECKPOINTING}interval", "5s", {}, {"checkpoint_interval": "5s"}),
    (f"{CHECKPOINTING}mode", "AT_LEAST_ONCE", {}, {"mode": "at-least-once"}),
    (f"{CHECKPOINTING}timeout", "10 min", {}, {"checkpoint_timeout": "10m"}),
    (f"{CHECKPOINTING}min-pause", "500", {}, {"min_pause": "500ms"}),
    (f"{CHECKPOINTING}max-concurrent-checkpoints", "2", {}, {"max_concurrent": "2"}),
    (f"{CHECKPOINTING}tolerable-failed-checkpoints", "3", {}, {"tolerable_failures": "3"}),
    (f"{CHECKPOINTING}num-retained", "3", {}, {"retained": "3"}),
    ("state.checkpoints.num-retained", "3", {}, {"retained": "3"}),
    (f"{CHECKPOINTING}incremental", "true", {}, {"snapshot": "incremental"}),
    ("state.backend.incremental", "TRUE", {}, {"snapshot": "incremental"}),
    (f"{CHECKPOINTING}local-backup.enabled", "true", {}, {"local_recovery": "true"}),
    ("execution.state-recovery.from-local", "true", {}, {"local_recovery": "true"}),
    ("state.backend.local-recovery", "true", {}, {"local_recovery": "true"}),
    (f"{CHECKPOINTING}unaligned.enabled", "true", {}, {"mode": "unaligned"}),
    (f"{CHECKPOINTING}unaligned", "true", {}, {"mode": "unaligned"}),
    (f"{CHECKPOINTING}unaligned.forced", "true", {}, {}),
    (f"{CHECKPOINTING}aligned-checkpoint-timeout", "30 s", UNALIGNED,
     {"mode": "aligned-timeout", "aligned_timeout": "30s"}),
    (f"{CHECKPOINTING}alignment-timeout", "30 s", UNALIGNED, {"mode": "aligned-timeout", "aligned_timeout": "30s"}),
    (f"{CHECKPOINTING}externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION", {}, {}),
    (f"{CHECKPOINTING}checkpoints-after-tasks-finish", "false", {}, {"checkpoints_after_tasks_finish": "false"}),
    (f"{CHECKPOINTING}checkpoints-after-tasks-finish.enabled", "false", {},
     {"checkpoints_after_tasks_finish": "false"}),
    (f"{CHECKPOINTING}interval-during-backlog", "1 h", {}, {"interval_during_backlog": "60m"}),
    (f"{CHECKPOINTING}data-inline-threshold", "20 kb", {}, {"inline_state_bytes": "20480"}),
    ("state.storage.fs.memory-threshold", "4kb", {}, {"inline_state_bytes": "4096"}),
    ("state.backend.fs.memory-threshold", "1024", {}, {"inline_state_bytes": "1024"}),
    (f"{CHECKPOINTING}snapshot-compression", "true", {}, {"snapshot_compression": "zlib"}),
    (f"{CHECKPOINTING}dir", "file:///checkpoints", {}, {"storage": "/checkpoints"}),
    ("state.checkpoints.dir", "s3://bucket/Jobs", {}, {"storage": "s3://bucket/Jobs"}),
    ("state.backend.fs.checkpointdir", "/c", {}, {"storage": "/c"}),
    (f"{CHECKPOINTING}savepoint-dir", "/saved", {}, {"savepoint_dir": "/saved"}),
    ("state.savepoints.dir", "/saved", {}, {"savepoint_dir": "/saved"}),
    ("savepoints.state.backend.fs.dir", "/saved", {}, {"savepoint_dir": "/saved"}),
    ("state.backend.type", "hashmap", {}, {"state_backend": "heap"}),
    ("state.backend.type", "forst", {}, {"state_backend": "lsm"}),
    ("state.backend", "rocksdb", {}, {"state_backend": "rocksdb"}),
    ("state.changelog.enabled", "true", {}, {"state_backend": "changelog"}),
    ("state.backend.changelog.enabled", "true", {"state.backend.type": "forst"}, {"state_backend": "changelog:lsm"}),
    ("state.changelog.periodic-materialize.interval", "3min", {}, {"materialization_interval": "3m"}),
    ("state.backend.changelog.periodic-materialize.interval", "3min", {}, {"materialization_interval": "3m"}),
    ("execution.state-recovery.ignore-unclaimed-state", "true", {}, {"allow_non_restored_state": "true"}),
    ("execution.savepoint.ignore-unclaimed-state", "true", {}, {"allow_non_restored_state": "true"}),
    ("restart-strategy.type", "none", {}, {"restart": "none"}),
    ("restart-strategy", "off", {}, {"restart": "none"}),
    ("restart-strategy.fixed-delay.attempts", "3", FIXED, {"restart": "fixed:3:1s"}),
    ("restart-strategy.fixed-delay.delay", "10 s", FIXED, {"restart": "fixed:1:10s"}),
    ("restart-strategy.failure-rate.max-failures-per-interval", "3", RATE, {"restart": "rate:3:60s:1s"}),
    ("restart-strategy.failure-rate.failure-rate-interval", "5 min", RATE, {"restart": "rate:1:300s:1s"}),
    ("restart-strategy.failure-rate.delay", "2 s", RATE, {"restart": "rate:1:60s:2s"}),
    ("restart-strategy.exponential-delay.initial-backoff", "2 s", GROWING,
     {"restart": "exponential:2s:60s:1.5:3600s:0.1:any"}),
    ("restart-strategy.exponential-delay.max-backoff", "5 s", GROWING,
     {"restart": "exponential:1s:5s:1.5:3600s:0.1:any"}),
    ("restart-strategy.exponential-delay.backoff-multiplier", "2.0", GROWING,
     {"restart": "exponential:1s:60s:2.0:3600s:0.1:any"}),
    ("restart-strategy.exponential-delay.reset-backoff-threshold", "10 s", GROWING,
     {"restart": "exponential:1s:60s:1.5:10s:0.1:any"}),
    ("restart-strategy.exponential-delay.jitter-factor", "0.2", GROWING,
     {"restart": "exponential:1s:60s:1.5:3600s:0.2:any"}),
    ("restart-strategy.exponential-delay.attempts-before-reset-backoff", "8", GROWING,
     {"restart": "exponential:1s:60s:1.5:3600s:0.1:8"}),
    ("jobmanager.execution.failover-strategy", "region", {}, {"failover": "region"}),
    ("heartbeat.timeout", "50000", {}, {"heartbeat_timeout": "50s"}),
    ("pipeline.max-parallelism", "256", {}, {"max_parallelism": "256"}),
    ("parallelism.default", "4", {}, {"parallelism": "4"}),
    (f"{DEBLOAT}enabled", "true", {}, {"debloat_target": "1s"}),
    (f"{DEBLOAT}target", "500 ms", ON, {"debloat_target": "500ms"}),
    (f"{DEBLOAT}period", "200", ON, {"debloat_target": "1s", "debloat_period": "200ms"}),
    (f"{DEBLOAT}samples", "10", {}, {"debloat_samples": "10"}),
    (f"{DEBLOAT}threshold-percentages", "50", {}, {"debloat_threshold_percent": "50"}),
    ("taskmanager.memory.segment-size", "16 kb", {}, {"segment_bytes": "16384"}),
    ("taskmanager.network.memory.buffers-per-channel", "4", {},
     {"segment_bytes": "32768", "exclusive_buffers": "4"}),
    ("taskmanager.network.memory.floating-buffers-per-gate", "0", {"taskmanager.memory.segment-size": "64kb"},
     {"segment_bytes": "65536", "floating_buffers": "0"}),
    ("execution.buffer-timeout", "0", {}, {"batch_size": "1"}),
    ("execution.buffer-timeout.interval", "0 ms", {}, {"batch_size": "1"}),
    ("execution.buffer-timeout.enabled", "false", {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "needed", "meaning"), MEANINGS)
def test_a_key_means_a_setting(key: str, value: str, needed: dict[str, str], meaning: dict[str, str]) -> None:
    """In its current and its deprecated spellings, a key sets a value of ours, or a note says why not."""
    found = translate({key: value, **needed})

    assert found.values == meaning
    assert meaning or any(note.startswith(f"{key} has no effect: ") for note in found.notes)
    for name, text in found.values.items():
        assert SETTINGS[name].show(SETTINGS[name].parse(text)) == text


def test_every_key_is_tried() -> None:
    """The table above has all that are understood."""
    assert {key for key, *_ in MEANINGS} == set(KEYS)


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ({f"{CHECKPOINTING}mode": "AT_LEAST_ONCE", **UNALIGNED}, "unaligned checkpoints are exactly-once"),
        ({f"{CHECKPOINTING}aligned-checkpoint-timeout": "1s"}, "it needs execution.checkpointing.unaligned.enabled"),
        ({f"{DEBLOAT}target": "1s"}, "it needs taskmanager.network.memory.buffer-debloat.enabled=true"),
        ({"taskmanager.memory.segment-size": "32kb", **ON}, "buffer debloating sets the credit of channels"),
        ({"restart-strategy.fixed-delay.delay": "1s"}, "it needs restart-strategy.type=fixed-delay"),
        ({"execution.buffer-timeout": "100 ms"}, "a batch is sent when it has batch_size records"),
        ({"state.backend.type": "rocksdb", "state.backend": "hashmap"}, "state.backend.type is given, too, and counts"),
        ({f"{CHECKPOINTING}externalized-checkpoint-retention": "DELETE_ON_CANCELLATION"}, "until you delete them"),
    ],
)
def test_what_has_no_effect_is_noted(given: dict[str, str], note: str) -> None:
    """A key that needs another one, that another spelling replaces, or whose value is the only way here."""
    assert note in "\n".join(translate(given).notes)


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [("5s", 5 * 10**9), ("5 s", 5 * 10**9), ("10 min", 600 * 10**9), ("250", 250 * 10**6), ("1 day", 86_400 * 10**9)],
)
def test_times_have_flinks_forms(text: str, expected_ns: int) -> None:
    """With a space or without; a bare number is in ms."""
    assert flink_duration_ns(text, "key") == expected_ns


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (f"{CHECKPOINTING}interval", "often", "interval: 'often' is not a time; write 500ms, 5 s"),
        (f"{CHECKPOINTING}mode", "ONCE", "mode: 'ONCE' is none of EXACTLY_ONCE, AT_LEAST_ONCE"),
        ("state.backend.type", "disk", "'disk' is none of hashmap"),
        (f"{CHECKPOINTING}num-retained", "0", "num-retained: retained is 0; it must be at least 1"),
        ("parallelism.default", "many", "parallelism.default: parallelism 'many' is not a whole number"),
        ("restart-strategy.type", "hope", "'hope' is none of fixed-delay, failure-rate, exponential-delay, none"),
    ],
)
def test_a_wrong_value_names_the_key(key: str, value: str, message: str) -> None:
    """The error also names the allowed values."""
    with pytest.raises(ConfigurationError, match=message):
        translate({key: value})


@pytest.mark.parametrize(
    "key",
    ["taskmanager.memory.process.size", "rest.port", "high-availability.type", "kubernetes.cluster-id",
     "yarn.application.name", "env.java.opts.all", "metrics.reporters", "jobmanager.memory.process.size",
     "execution.checkpointing.write-buffer-size", "state.backend.rocksdb.memory.managed",
     "taskmanager.numberOfTaskSlots", "restart-strategy.none"],
)  # fmt: skip
def test_a_key_without_meaning_says_why(key: str) -> None:
    """The reason concerns this part of Flink."""
    assert reason_against(key)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("execution.checkpointing.intervall", "did you mean execution.checkpointing.interval"),
        ("state.backend.typ", "did you mean state.backend.type"),
        ("chekpoint_interval", "did you mean checkpoint_interval"),
        ("weather.tomorrow", "there is no setting 'weather.tomorrow'; docs/configuration.md lists all settings"),
    ],
)
def test_an_unknown_key_names_its_neighbours(key: str, message: str) -> None:
    """Even where its beginning is one of Flink's: a slip must not look like a key without meaning."""
    with pytest.raises(ConfigurationError, match=message):
        reason_against(key)
