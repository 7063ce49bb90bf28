"""Flink's keys and values as settings of a run.

A key stands in the table of settings beside the setting that it means. Its value has Flink's form: a time without a
unit is in ms. Some settings of ours need several keys of Flink together; these have a function each. A key that means
nothing here is in :data:`MEANINGLESS`, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from engine.checkpoint.restore import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoRestart
from engine.elements.errors import ConfigurationError
from engine.elements.setting_fields import DURATION, Setting
from engine.elements.suggestions import neighbours
from engine.runtime.config import SETTINGS, CheckpointInterval

CHECKPOINTING, RESTART = "execution.checkpointing.", "restart-strategy."
_DEBLOAT = "taskmanager.network.memory.buffer-debloat."
_RETENTION = f"{CHECKPOINTING}externalized-checkpoint-retention"
_FORCED = f"{CHECKPOINTING}unaligned.forced"
_BUFFER_TIMEOUT_ENABLED = "execution.buffer-timeout.enabled"
_SEGMENT_BYTES = "32768"
"""Of a buffer, in Flink."""

_OF_RESTARTS = {
    "fixed-delay": ("attempts", "delay"),
    "failure-rate": ("max-failures-per-interval", "failure-rate-interval", "delay"),
    "exponential-delay": (
        "initial-backoff", "max-backoff", "backoff-multiplier", "reset-backoff-threshold", "jitter-factor",
        "attempts-before-reset-backoff",
    ),
    "none": (),
}  # fmt: skip
_RESTART_SPELLINGS = {
    "off": "none", "disable": "none", "fixeddelay": "fixed-delay", "failurerate": "failure-rate",
    "exponentialdelay": "exponential-delay",
}  # fmt: skip
_RESTART_KEYS = tuple(f"{RESTART}{kind}.{name}" for kind, names in _OF_RESTARTS.items() for name in names)

KEYS: Mapping[str, Setting | None] = {
    **{key: one for one in SETTINGS.values() for key in one.about.flink},
    **dict.fromkeys((*_RESTART_KEYS, _RETENTION, _FORCED, _BUFFER_TIMEOUT_ENABLED)),
}
"""Every key that is understood, and the setting that it means."""

_WORDS: Mapping[str, Mapping[str, str]] = {
    "snapshot": {"true": "incremental", "false": "full"},
    "snapshot_compression": {"true": "zlib", "false": "none"},
    "failover": {"full": "full", "region": "region"},
}
_GUARANTEES = {"EXACTLY_ONCE": "aligned", "AT_LEAST_ONCE": "at-least-once"}
_BACKENDS = {
    "hashmap": "heap", "filesystem": "heap", "jobmanager": "heap", "rocksdb": "rocksdb", "forst": "lsm",
}  # fmt: skip

_ONE_PROCESS = "all tasks run in one process"
_NO_MEMORY = "Weir does not divide memory"
MEANINGLESS: Mapping[str, str] = {
    "taskmanager.memory.": _NO_MEMORY,
    "jobmanager.memory.": _NO_MEMORY,
    "taskmanager.network.": "of the network, Weir has the buffers of channels, see segment_bytes",
    "taskmanager.": _ONE_PROCESS,
    "jobmanager.": _ONE_PROCESS,
    "kubernetes.": _ONE_PROCESS,
    "yarn.": _ONE_PROCESS,
    "high-availability": "the job manager's successor is simulated, see master_recovery",
    "zookeeper.": _ONE_PROCESS,
    "cluster.": _ONE_PROCESS,
    "slot": _ONE_PROCESS,
    "resourcemanager.": _ONE_PROCESS,
    "external-resource": _ONE_PROCESS,
    "process.": _ONE_PROCESS,
    "rest.": "there is no server; the report is in run.json",
    "web.": "there is no server; the report is in run.json",
    "historyserver.": "there is no server; the report is in run.json",
    "jobstore.": "there is no server; the report is in run.json",
    "job-result-store.": "there is no server; the report is in run.json",
    "queryable-state.": "there is no server; look into state with weir inspect",
    "metrics.": "there are no reporters; the figures are in run.json",
    "traces.": "there are no reporters; see --trace",
    "events.": "there are no reporters; see --trace",
    "env.": "there is no Java process",
    "akka.": _ONE_PROCESS,
    "pekko.": _ONE_PROCESS,
    "blob.": _ONE_PROCESS,
    "security.": _ONE_PROCESS,
    "classloader.": "there is no Java process",
    "io.": "Weir chooses its own directories",
    "fs.": "a storage directory may be a URL of fsspec, which has its own settings",
    "s3.": "a storage directory may be a URL of fsspec, which has its own settings",
    "hadoop": "a storage directory may be a URL of fsspec, which has its own settings",
    "client.": _ONE_PROCESS,
    "deployment": _ONE_PROCESS,
    "heartbeat.": "only heartbeat.timeout has an equal, heartbeat_timeout",
    "pipeline.": "it concerns Java programs",
    "python.": "it concerns Java programs",
    "table.": "there is no SQL",
    "sql-": "there is no SQL",
    "execution.state-recovery.": "name the snapshot and its owner with --from and --claim-mode",
    "execution.savepoint": "name the snapshot and its owner with --from and --claim-mode",
    "execution.batch": "every job is a streaming job",
    "execution.runtime-mode": "every job is a streaming job",
    CHECKPOINTING: "Weir has no such part of checkpointing",
    "execution.": "Weir has no such part of execution",
    "state.backend.rocksdb.": "RocksDB runs with its own defaults",
    "rocksdb.": "RocksDB runs with its own defaults",
    "state.backend.forst.": "the lsm backend has no such settings",
    "state.": "Weir has no such part of state",
    "changelog.": "the changelog is written to the checkpoint storage",
    "dstl.": "the changelog is written to the checkpoint storage",
    "parallelism.": "only parallelism.default has an equal, parallelism",
    RESTART: "no restart strategy has this part",
    "internal.": "it is internal to Flink",
    "$internal.": "it is internal to Flink",
}
"""By the beginning of a key: why it has no equal here. The longest beginning counts."""

_UNITS = (
    (86_400_000_000_000, "d|day|days"), (3_600_000_000_000, "h|hour|hours"), (60_000_000_000, "min|m|minute|minutes"),
    (1_000_000_000, "s|sec|secs|second|seconds"), (1_000_000, "ms|milli|millis|millisecond|milliseconds|"),
    (1_000, "us|µs|micro|micros|microsecond|microseconds"), (1, "ns|nano|nanos|nanosecond|nanoseconds"),
)  # fmt: skip
_UNIT_NS = {unit: factor for factor, units in _UNITS for unit in units.split("|")}


def flink_duration_ns(text: str, key: str) -> int:
    """The ns of a time as Flink writes it: ``5 s``, ``10min``, or a number of ms. Raises :class:`ConfigurationError` on
    anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zµ]*)", text.strip().lower())
    if match is None or match[2] not in _UNIT_NS:
        raise ConfigurationError(f"{key}: {text!r} is not a time; write 500ms, 5 s, 10 min, or a number of ms")
    return round(Decimal(match[1]) * _UNIT_NS[match[2]])


@dataclass(slots=True)
class Translation:
    """Settings that keys of Flink mean.

    ``values``   texts by public name;
    ``keys``     the keys that decided each of them;
    ``notes``    keys that have no effect, each with the reason.
    """

    values: dict[str, str] = field(default_factory=dict)
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def other_spellings(key: str) -> tuple[str, ...]:
    """The keys of Flink that say the same as this one, current or deprecated."""
    one = KEYS.get(key)
    return () if one is None else next(keys for keys in _spellings(one) if key in keys)


def _spellings(one: Setting) -> tuple[tuple[str, ...], ...]:
    keys = one.about.flink
    apart = {"mode": 1, "state_backend": 2, "debloat_target": 1}.get(one.name)  # these have two keys, not one
    return (keys,) if apart is None else (keys[:apart], keys[apart:])


def reason_against(key: str) -> str | None:
    """Why a key of Flink has no effect here, ``None`` if it has one, or is close to one that has and so may be a slip.
    Raises :class:`ConfigurationError` naming the neighbours when Flink has no such key, as far as known."""
    if key in KEYS:
        return None
    slips = neighbours(key, KEYS, within=2)
    beginning = max((one for one in MEANINGLESS if key.startswith(one)), key=len, default=None)
    if beginning is not None and not slips:
        return MEANINGLESS[beginning]
    close = slips or neighbours(key, (*KEYS, *SETTINGS))
    hint = f"did you mean {' or '.join(close)}?" if close else "docs/configuration.md lists all settings"
    raise ConfigurationError(f"there is no setting {key!r}; {hint}")


def translate(given: Mapping[str, str]) -> Translation:
    """The settings that these keys mean together. Raises :class:`ConfigurationError` on a value that Flink would not
    take, or that has no equal here."""
    reader = _Reader(given)
    for together in (_mode, _state_backend, _debloating, _buffers, _restart, _buffer_timeout):
        together(reader)
    for one in SETTINGS.values():
        found = reader.take(*one.about.flink)
        if found is not None:
            reader.put(one.name, _text_of(one, *found), found[0])
    retention, forced = reader.take(_RETENTION), reader.take(_FORCED)
    if retention is not None:
        kept = "they always stay" if retention[1] == "RETAIN_ON_CANCELLATION" else "they stay until you delete them"
        reader.note(_RETENTION, f"checkpoints in a storage directory: {kept}")
    if forced is not None:
        reader.note(_FORCED, "no job needs it: unaligned checkpoints work with iterations, too")
    return reader.found


class _Reader:
    """Takes keys from what is given, one after the other."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._left = dict(given)
        self.found = Translation()

    def take(self, *keys: str) -> tuple[str, str] | None:
        """The first of these spellings that is given, with its value. The other ones count no more, as in Flink."""
        first: tuple[str, str] | None = None
        for key in keys:
            if key in self._left:
                text = self._left.pop(key).strip()
                if first is None:
                    first = key, text
                else:
                    self.note(key, f"{first[0]} is given, too, and counts")
        return first

    def one_of(self, words: Mapping[str, str], *keys: str) -> str | None:
        found = self.take(*keys)
        return None if found is None else word_in(words, *found)

    def switch(self, *keys: str) -> bool | None:
        word = self.one_of({"true": "true", "false": "false"}, *keys)
        return None if word is None else word == "true"

    def put(self, name: str, text: str, *keys: str) -> None:
        """A setting, and the keys that may have decided it."""
        self.found.values[name] = text
        self.found.keys[name] = tuple(key for key in keys if key in self._given)

    def note(self, key: str, why: str) -> None:
        self.found.notes.append(f"{key} has no effect: {why}")


def word_in(words: Mapping[str, str], key: str, text: str) -> str:
    """The meaning of a word, in any case. Raises :class:`ConfigurationError` with the words there are."""
    for word, meaning in words.items():
        if word.lower() == text.lower():
            return meaning
    raise ConfigurationError(f"{key}: {text!r} is none of {', '.join(words)}")


def _text_of(one: Setting, key: str, text: str) -> str:
    if one.name in _WORDS:
        return word_in(_WORDS[one.name], key, text)
    if one.kind is DURATION:
        return one.show(flink_duration_ns(text, key))
    if CheckpointInterval in one.kind.types:
        return one.show(CheckpointInterval(time_ns=flink_duration_ns(text, key)))
    if one.name in ("storage", "savepoint_dir"):
        return text.removeprefix("file://")
    if one.optional and text == "-1":
        return one.about.none_text
    try:
        return one.show(one.parse(text.lower()))
    except ConfigurationError as error:
        raise ConfigurationError(f"{key}: {error}") from None


def _mode(reader: _Reader) -> None:
    """Guarantee, unaligned checkpoints and their time-out make the mode together."""
    names = SETTINGS["mode"].about.flink
    unaligned_keys, timeout_keys = names[1:], SETTINGS["aligned_timeout"].about.flink
    mode, unaligned = reader.one_of(_GUARANTEES, names[0]), reader.switch(*unaligned_keys)
    timeout = reader.take(*timeout_keys)
    timeout_ns = 0 if timeout is None else flink_duration_ns(timeout[1], timeout[0])
    if mode is None and unaligned is None:
        pass
    elif mode == "at-least-once":
        reader.put("mode", mode, names[0])
        if unaligned:
            reader.note(unaligned_keys[0], "unaligned checkpoints are exactly-once")
    elif unaligned and timeout is not None and timeout_ns:
        reader.put("mode", "aligned-timeout", *names, timeout[0])
        reader.put("aligned_timeout", DURATION.show(timeout_ns), timeout[0])
    else:
        reader.put("mode", "unaligned" if unaligned else "aligned", *names)
    if timeout_ns and "aligned_timeout" not in reader.found.values:
        reader.note(timeout_keys[0], f"it needs {unaligned_keys[0]}=true and mode EXACTLY_ONCE")


def _state_backend(reader: _Reader) -> None:
    names = SETTINGS["state_backend"].about.flink
    backend, changelog = reader.one_of(_BACKENDS, *names[:2]), reader.switch(*names[2:])
    if changelog:
        reader.put("state_backend", "changelog" if backend in (None, "heap") else f"changelog:{backend}", *names)
    elif backend is not None:
        reader.put("state_backend", backend, *names)
    elif changelog is not None:
        reader.note(names[2], "a state backend has no changelog unless its name says so")


def _debloating(reader: _Reader) -> None:
    """The target counts only if debloating is enabled, and the period only with a target."""
    enabled = reader.switch(f"{_DEBLOAT}enabled")
    if enabled is False:
        reader.note(f"{_DEBLOAT}enabled", "debloating is off unless a target is set")
    target, period = reader.take(f"{_DEBLOAT}target"), reader.take(f"{_DEBLOAT}period")
    for name, found, default in (("target", target, "1 s"), ("period", period, None)):
        text = default if found is None else found[1]
        if enabled and text is not None:
            time_ns = flink_duration_ns(text, f"{_DEBLOAT}{name}")
            reader.put(f"debloat_{name}", DURATION.show(time_ns), f"{_DEBLOAT}enabled", f"{_DEBLOAT}{name}")
        elif found is not None:
            reader.note(found[0], f"it needs {_DEBLOAT}enabled=true")


def _buffers(reader: _Reader) -> None:
    """Numbers of buffers mean buffers of Flink's size. Debloating, which counts records here, excludes them."""
    settings = [SETTINGS[name] for name in ("segment_bytes", "exclusive_buffers", "floating_buffers")]
    found = {one.name: reader.take(*one.about.flink) for one in settings}
    for one in settings:
        given = found[one.name]
        if given is None:
            continue
        if "debloat_target" in reader.found.values:
            reader.note(given[0], "buffer debloating sets the credit of channels, in records")
            continue
        reader.put(one.name, _text_of(one, *given), given[0])
        if found["segment_bytes"] is None:
            reader.put("segment_bytes", _SEGMENT_BYTES, given[0])


def _buffer_timeout(reader: _Reader) -> None:
    """A batch is sent when it is complete. Only ``0``, each record at once, has an equal."""
    found, enabled = reader.take(*SETTINGS["batch_size"].about.flink), reader.switch(_BUFFER_TIMEOUT_ENABLED)
    key, text = (_BUFFER_TIMEOUT_ENABLED, "-1") if found is None else found
    if enabled is not False and text != "-1" and flink_duration_ns(text, key) == 0:
        reader.put("batch_size", "1", key, _BUFFER_TIMEOUT_ENABLED)
    elif found is not None or enabled is not None:
        reader.note(key, "a batch is sent when it has batch_size records")


def _restart(reader: _Reader) -> None:
    names = SETTINGS["restart"].about.flink
    words = {**{kind: kind for kind in _OF_RESTARTS}, **_RESTART_SPELLINGS}
    chosen = reader.one_of(words, *names)
    parts: dict[str, Any] = {}
    for kind, own in _OF_RESTARTS.items():
        for name in own:
            found = reader.take(f"{RESTART}{kind}.{name}")
            if found is not None and kind == chosen:
                parts[name] = _number(*found) if name in _NUMBERS else flink_duration_ns(found[1], found[0])
            elif found is not None:
                reader.note(found[0], f"it needs {names[0]}={kind}")
    if chosen is not None:
        keys = (*names, *(f"{RESTART}{chosen}.{name}" for name in parts))
        strategy = _STRATEGIES[chosen](*map(parts.get, _OF_RESTARTS[chosen]))
        reader.put("restart", SETTINGS["restart"].show(strategy), *keys)


_NUMBERS = (
    "attempts", "max-failures-per-interval", "backoff-multiplier", "jitter-factor", "attempts-before-reset-backoff",
)  # fmt: skip


def _number(key: str, text: str) -> float:
    try:
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    except ValueError:
        raise ConfigurationError(f"{key}: {text!r} is not a number") from None


def _fixed(attempts: int | None, delay_ns: int | None) -> FixedDelayRestart:
    return FixedDelayRestart(1 if attempts is None else attempts, 1_000_000_000 if delay_ns is None else delay_ns)


def _other(strategy: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Its defaults are Flink's."""

    def made(*values: object) -> Any:
        return strategy(**{name: one for name, one in zip(names, values, strict=True) if one is not None})

    return made


_STRATEGIES: Mapping[str, Callable[..., Any]] = {
    "none": NoRestart,
    "fixed-delay": _fixed,
    "failure-rate": _other(FailureRateRestart, "max_failures", "interval_ns", "delay_ns"),
    "exponential-delay": _other(
        ExponentialDelayRestart, "initial_ns", "max_ns", "multiplier", "reset_after_ns", "jitter", "attempts"
    ),
}
