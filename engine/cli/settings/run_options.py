"""The options of a run: how users type them, how they are stored beside the checkpoints, and their configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar, get_args, get_type_hints

import click

from engine.cli.shell import AtLeast, OneOf
from engine.elements.errors import ConfigurationError, StorageError

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

SETTINGS = {
    "aligned_timeout_ns": "aligned_timeout",
    "checkpoint_timeout_ns": "checkpoint_timeout",
    "min_pause_ns": "min_pause",
    "max_concurrent": "max_concurrent",
    "interval_during_backlog_ns": "interval_during_backlog",
    "checkpoint_interval": "checkpoint_interval",
    "checkpoint interval": "checkpoint_interval",
    "debloat_target_ns": "debloat",
    "restart ": "restart",
    "state_backend": "state_backend",
    "snapshot is": "snapshot",
    "materialization_interval_ns": "materialization_interval",
}
"""By the name of a setting in an error: the option that sets it."""

_FLAGS = ("local_recovery",)
"""Options without a value: present or not."""

_AS_TYPED = {
    "batch_size": "batch_size",
    "retain": "retained",
    "tolerable_failures": "tolerable_failures",
    "max_concurrent": "max_concurrent",
    "failover": "failover",
    "state_backend": "state_backend",
    "snapshot": "snapshot",
    "compression": "snapshot_compression",
    "local_recovery": "local_recovery",
}
_TIMES = {
    "checkpoint_timeout": "checkpoint_timeout_ns",
    "min_pause": "min_pause_ns",
    "aligned_timeout": "aligned_timeout_ns",
    "interval_during_backlog": "interval_during_backlog_ns",
    "debloat": "debloat_target_ns",
}
_OF_ACKING = {"ackers": "ackers", "max_spout_pending": "max_pending"}
"""By option: the setting for its value, or its time; the last of :class:`AckingSettings`."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options that decide how a job runs, as they were typed. ``None`` = the engine's default.

    These go into the descriptor of a storage directory, so that ``weir resume`` runs the job the same way; faults
    and output forms do not.
    """

    seed: str = "0"
    mode: str = "aligned"
    parallelism: int | None = None
    batch_size: int | None = None
    checkpoint_interval: str | None = None
    checkpoint_timeout: str | None = None
    min_pause: str | None = None
    retain: int | None = None
    tolerable_failures: int | None = None
    restart: str | None = None
    aligned_timeout: str | None = None
    max_concurrent: int | None = None
    failover: str | None = None
    interval_during_backlog: str | None = None
    checkpoints_after_tasks_finish: bool = True
    debloat: str | None = None
    state_backend: str | None = None
    snapshot: str | None = None
    compression: str | None = None
    local_recovery: bool | None = None
    materialization_interval: str | None = None
    ackers: int | None = None
    acker_timeout: str | None = None
    max_spout_pending: int | None = None

    def to_config(self, *, allow_non_restored_state: bool = False) -> Any:
        """The :class:`engine.runtime.config.RunConfig` for these options. Raises :class:`ConfigurationError` naming the
        setting and its allowed values, with the options as they were typed."""
        try:
            return self._to_config(allow_non_restored_state)
        except ConfigurationError as error:
            # The raising package knows settings in nanoseconds, and no command line.
            typed = self._typed_options(str(error))
            if typed:
                error.add_note(f"here: {typed}")
            raise

    def _typed_options(self, message: str) -> str:
        """The options for the settings that a message names, as they were typed."""
        names = [option for setting, option in SETTINGS.items() if setting in message]
        typed = [(name, getattr(self, name)) for name in names]
        return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in typed if value is not None)

    def _to_config(self, allow_non_restored_state: bool) -> Any:
        from engine.cli.settings.restart_strategies import parse_restart
        from engine.protocols.acking.settings import AckingSettings
        from engine.runtime.config import CheckpointInterval, RunConfig, parse_duration_ns

        typed = {option: value for option, value in self.as_dict().items() if value is not None}
        changes: dict[str, Any] = {_AS_TYPED[option]: value for option, value in typed.items() if option in _AS_TYPED}
        for option, setting in _TIMES.items():
            if option in typed:
                changes[setting] = parse_duration_ns(typed[option], setting.removesuffix("_ns").replace("_", " "))
        if self.checkpoint_interval is not None:
            none = self.checkpoint_interval == "none"
            changes["checkpoint_interval"] = None if none else CheckpointInterval.parse(self.checkpoint_interval)
        if self.materialization_interval is not None:
            interval_ns = _time_or_none(self.materialization_interval, "materialization interval")
            changes["materialization_interval_ns"] = interval_ns
        if self.restart is not None:
            changes["restart"] = parse_restart(self.restart)
        acking: dict[str, Any] = {_OF_ACKING[option]: value for option, value in typed.items() if option in _OF_ACKING}
        if self.acker_timeout is not None:
            acking["timeout_ns"] = _time_or_none(self.acker_timeout, "acker timeout")
        if acking:
            if self.mode != "acking":
                raise ConfigurationError(
                    "--ackers, --acker-timeout and --max-spout-pending are about mode acking; leave them out, or add"
                    " --mode acking"
                )
            changes["acking"] = AckingSettings(**acking)
        return RunConfig(
            mode=self.mode,
            seed=self.seed,
            allow_non_restored_state=allow_non_restored_state,
            checkpoints_after_tasks_finish=self.checkpoints_after_tasks_finish,
            **changes,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for the descriptor and the report."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str, *, complete: bool = False) -> RunOptions:
        """Reads the data of :meth:`as_dict`; missing options count as not typed, unless it must be ``complete``.

        Raises :class:`StorageError` on an option this version does not know, :class:`TypeError` on a value of another
        type, and :class:`ValueError` on a missing one.
        """
        if not isinstance(values, dict):
            raise TypeError(f"options is {values!r}, not names with values")
        types = get_type_hints(cls)
        missing = [name for name in types if name not in values]
        if complete and missing:
            raise ValueError(f"option {missing[0]!r} is missing")
        unknown = sorted(set(values) - set(types))
        if unknown:
            raise StorageError(
                f"{source}: option {unknown[0]!r} is not known to this version of Weir\n"
                "  fix: resume with the version that started the run"
            )
        for name, value in values.items():
            # The exact type: to Python a bool is an int, but it is not a number of subtasks.
            if type(value) not in (get_args(types[name]) or (types[name],)):
                raise TypeError(f"option {name!r} is {value!r}")
        return cls(**values)

    def as_arguments(self) -> list[str]:
        """The arguments that give these options; default values are left out."""
        arguments: list[str] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _FLAGS and value is not None:
                arguments.append(f"--{'' if value else 'no-'}{field.name.replace('_', '-')}")
            elif value != field.default:
                arguments += [f"--{field.name.replace('_', '-')}", str(value)]
        return arguments


def _time_or_none(text: str, what: str) -> int | None:
    from engine.runtime.config import parse_duration_ns

    return None if text == "none" else parse_duration_ns(text, what)


def parse_params(texts: tuple[str, ...]) -> dict[str, str]:
    """``('name=value', …)`` as a dict. Raises :class:`ConfigurationError` on another form or a name given twice."""
    params: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigurationError(f"--param {text!r} is not of the form name=value; e.g. --param records=1000")
        if name in params:
            raise ConfigurationError(f"--param {name} is given twice: {params[name]!r} and {value!r}; leave one out")
        params[name] = value
    return params


def modes() -> list[str]:
    """The names of all checkpoint protocols."""
    from engine.protocols.protocol_names import MODE_ALIASES, PROTOCOLS

    return [*PROTOCOLS, *MODE_ALIASES]


def config_options(command: CommandT) -> CommandT:
    """The options that make up :class:`RunOptions`."""
    decorators = (
        click.option("--seed", default="0", show_default=True, help="Seed of every choice: a number or any text."),
        click.option(
            "--mode", type=OneOf(modes()), default="aligned", show_default=True, help="How checkpoints are taken."
        ),
        click.option("--parallelism", type=AtLeast(1), help="Subtasks per operator that names no number of its own."),
        click.option("--batch-size", type=AtLeast(1), help="Records a source emits at a time."),
        click.option(
            "--checkpoint-interval",
            metavar="100ms|10000rec|none",
            help="Virtual time, or source records, between checkpoints. [default: 100ms]",
        ),
        click.option("--checkpoint-timeout", metavar="TIME", help="A slower checkpoint is aborted. [default: 10m]"),
        click.option("--min-pause", metavar="TIME", help="Least time between two checkpoints. [default: 0s]"),
        click.option("--retain", type=AtLeast(1), help="Checkpoints kept. [default: 2]"),
        click.option(
            "--tolerable-failures",
            type=AtLeast(0),
            help="Failed checkpoints in a row that do not fail the job. [default: 0]",
        ),
        click.option(
            "--restart",
            metavar="STRATEGY",
            help="After a failure: none, fixed:3:10ms, exponential:10ms:1s:2 or rate:2:1m:10ms. "
            "[default: fixed:3:10ms; none in mode none]",
        ),
        click.option(
            "--failover",
            type=OneOf(["full", "region"]),
            help="What a failed task takes with it: all tasks, or those it exchanges records with. [default: full]",
        ),
        click.option(
            "--aligned-timeout",
            metavar="TIME",
            help="In mode aligned-timeout: a barrier older than this overtakes records. [default: 10ms]",
        ),
        click.option(
            "--max-concurrent", type=AtLeast(1), help="Checkpoints that may be under way together. [default: 1]"
        ),
        click.option(
            "--interval-during-backlog",
            metavar="TIME",
            help="Checkpoint interval while a source works off a backlog; 0s = no checkpoints then.",
        ),
        click.option(
            "--debloat",
            metavar="TIME",
            help="Buffer debloating: keep no more records in flight to a task than it takes in this time.",
        ),
        click.option(
            "--ackers",
            type=AtLeast(0),
            help="In mode acking: how many track records; 0 = nothing is tracked. [default: one per worker]",
        ),
        click.option(
            "--acker-timeout",
            metavar="TIME|none",
            help="In mode acking: a record of which nothing was heard for so long is sent again. [default: 30s]",
        ),
        click.option(
            "--max-spout-pending",
            type=AtLeast(1),
            help="In mode acking: unacknowledged records of one source subtask. [default: any number]",
        ),
        click.option(
            "--checkpoints-after-tasks-finish",
            type=bool,
            default=True,
            show_default=True,
            help="Whether tasks may finish before the job does.",
        ),
    )
    return decorated(state_options(command), decorators)


def state_options(command: CommandT) -> CommandT:
    """The options about keyed state, which ``weir resume`` has as well."""
    decorators = (
        click.option(
            "--state-backend",
            metavar="NAME",
            help="What keyed state is kept in: heap, lsm, rocksdb, changelog, or changelog:lsm for a changelog over"
            " another one. [default: heap]",
        ),
        click.option(
            "--snapshot",
            type=OneOf(["full", "incremental"]),
            help="Whether a checkpoint holds all keyed state, or refers to what earlier ones wrote. [default: full]",
        ),
        click.option("--compression", type=OneOf(["none", "zlib"]), help="Of full snapshots. [default: none]"),
        click.option(
            "--local-recovery/--no-local-recovery",
            default=None,
            help="Keep a copy of each subtask's state beside it, to restore from after a failure. [default: no]",
        ),
        click.option(
            "--materialization-interval",
            metavar="TIME",
            help="Of the changelog: virtual time between two snapshots of the state behind it; none = never."
            " [default: 10m]",
        ),
    )
    return decorated(command, decorators)


def run_options(command: CommandT) -> CommandT:
    """The options of one run that are not stored in a descriptor: faults and forms of output."""
    decorators = (
        click.option(
            "--kill",
            "kills",
            multiple=True,
            metavar="NAME@TIME",
            help="Kill a subtask ('count[1]@3ms'), all of an operator ('count@3ms') or the 'job manager@3ms' then. "
            "Repeatable.",
        ),
        click.option(
            "--fault",
            "fault_texts",
            multiple=True,
            metavar="FAULT",
            help="Have something go wrong: 'crash:count[1]@before:snapshot.sync#2', 'pause:count[0]@12us~5us', "
            "'lose:receive_acknowledge count[1]#1', … Repeatable.",
        ),
        click.option(
            "--paranoid",
            is_flag=True,
            help="Stop with an error where a function of the job reads the clock, draws random numbers, hashes, or "
            "uses threads or sockets. Slow.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON on standard output."),
        click.option(
            "--trace",
            is_flag=False,
            flag_value="",
            metavar="[FILE]",
            help="Write every event to FILE, as JSON Lines; goes last. [default: trace.jsonl beside run.json]",
        ),
    )
    return decorated(command, decorators)


def decorated(command: CommandT, decorators: tuple[Callable[[CommandT], CommandT], ...]) -> CommandT:
    """A command with several options, listed in this order."""
    # The decorator applied last is listed first.
    for decorator in reversed(decorators):
        command = decorator(command)
    return command
