"""The options of a run: how users type them, how they are stored beside the checkpoints, and their configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from engine.cli.shell import AtLeast, OneOf
from engine.elements.errors import ConfigurationError, StorageError
from engine.elements.setting_fields import SWITCH, WHOLE, Setting
from engine.runtime.config import OPTIONS, SETTINGS, RunConfig, config_of, find_setting, read_setting

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

Plain = str | int | bool

_ALWAYS = ("mode", "seed", "checkpoints_after_tasks_finish")
"""Options that a descriptor names even when they were not typed."""

_OF_STATE = ("state_backend", "snapshot", "compression", "local_recovery", "materialization_interval")
"""Options that ``weir resume`` has as well."""

STATE_SETTINGS = tuple(OPTIONS[option].name for option in _OF_STATE)
"""Settings that ``weir resume`` may change, besides costs."""

_FLAGS = ("local_recovery",)
"""Options without a value: present or not."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The settings that decide how a job runs, as they were typed, by public name.

    These go into the descriptor of a storage directory, so that ``weir resume`` runs the job the same way; faults
    and output forms do not.
    """

    values: Mapping[str, Plain] = field(default_factory=dict)

    @classmethod
    def of(cls, **options: Plain | None) -> RunOptions:
        """By option; ``None`` = not typed."""
        return cls({OPTIONS[name].name: value for name, value in options.items() if value is not None})

    def with_options(self, options: Mapping[str, Plain | None]) -> RunOptions:
        """With other values of some options; ``None`` changes nothing."""
        return RunOptions({**self.values, **RunOptions.of(**options).values})

    def without(self, option: str) -> RunOptions:
        return RunOptions({name: value for name, value in self.values.items() if name != OPTIONS[option].name})

    def get(self, option: str) -> Plain | None:
        """The value of an option, its default if it is one that is always told, ``None`` if it was not typed."""
        one = OPTIONS[option]
        default: Plain | None = one.default if option in _ALWAYS else None
        return self.values.get(one.name, default)

    def number(self, name: str) -> int | None:
        """The value of ``parallelism`` or ``max_parallelism``, ``None`` if the job file decides it."""
        value = self.values.get(name)
        return value if isinstance(value, int) else None

    def to_config(self, *, allow_non_restored_state: bool = False) -> RunConfig:
        """The configuration for these options. Raises :class:`ConfigurationError` naming the setting and its allowed
        values, with the options as they were typed."""
        try:
            return self._to_config(allow_non_restored_state)
        except ConfigurationError as error:
            # The raising package knows settings in nanoseconds, and no command line.
            typed = [argument for name in self.values if _is_about(error, name) for argument in self._argument(name)]
            if typed:
                error.add_note(f"here: {' '.join(typed)}")
            raise

    def _to_config(self, allow_non_restored_state: bool) -> RunConfig:
        if self.get("mode") != "acking" and any(find_setting(name)[0].owner == "acking" for name in self.values):
            raise ConfigurationError(
                "--ackers, --acker-timeout and --max-spout-pending are about mode acking; leave them out, or add"
                " --mode acking"
            )
        values = {
            name: read_setting(name, value) if isinstance(value, str) else value for name, value in self.values.items()
        }
        return config_of(values | ({"allow_non_restored_state": True} if allow_non_restored_state else {}))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for the descriptor and the report: every option, and the settings that have none."""
        options = {option: self.get(option) for option in OPTIONS}
        others = {name: value for name, value in self.values.items() if find_setting(name)[0].about.option is None}
        return {**options, "settings": others} if others else options

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str, *, complete: bool = False) -> RunOptions:
        """Reads the data of :meth:`as_dict`; missing options count as not typed, unless it must be ``complete``.

        Raises :class:`StorageError` on an option this version does not know, :class:`TypeError` on a value of another
        type, and :class:`ValueError` on a missing one.
        """
        others: Any = values.get("settings", {}) if isinstance(values, dict) else None
        if not isinstance(others, dict):
            raise TypeError(f"options is {values!r}, not names with values")
        missing = [name for name in OPTIONS if name not in values]
        if complete and missing:
            raise ValueError(f"option {missing[0]!r} is missing")
        found: dict[str, Plain] = {}
        given: list[tuple[str, Any]] = [*values.items(), *others.items()]
        for name, value in given:
            if name == "settings" or (value is None and name in OPTIONS and name not in _ALWAYS):
                continue
            one = OPTIONS[name] if name in OPTIONS else _known(name, source)
            # The exact type: to Python a bool is an int, but it is not a number of subtasks.
            exact = type(value)
            if exact is not {WHOLE: int, SWITCH: bool}.get(one.kind, str) and value != one.about.none_text:
                raise TypeError(f"option {name!r} is {value!r}")
            if name not in _ALWAYS or value != one.default:
                found[one.name if name in OPTIONS else name] = value
        return cls(found)

    def as_arguments(self) -> list[str]:
        """The arguments that give these options; default values are left out."""
        order = [*SETTINGS, *(name for name in self.values if name not in SETTINGS)]
        return [argument for name in order if name in self.values for argument in self._argument(name)]

    def _argument(self, name: str) -> list[str]:
        one, value = find_setting(name)[0], self.values[name]
        option = "preset" if name == "preset" else one.about.option
        if option is None:
            return ["--set", f"{name}={_text(value)}"]
        if one.kind is WHOLE and value == one.about.none_text:
            # The option takes a number only.
            return [] if one.default is None else ["--set", f"{name}={value}"]
        if option in _FLAGS:
            return [f"--{'' if value else 'no-'}{_dashed(option)}"]
        return [] if value == one.default else [f"--{_dashed(option)}", str(value)]


def _is_about(error: ConfigurationError, name: str) -> bool:
    """Whether the message of an error names a setting: a single word is also a word of its sentences."""
    one, _ = find_setting(name)
    spoken = {one.field, one.name, one.words, name}
    message = str(error)
    return any(
        message.startswith(f"{word} ") or ("_" in word and re.search(rf"\b{re.escape(word)}\b", message))
        for word in spoken
    )


def _known(name: str, source: str) -> Setting:
    try:
        return find_setting(name)[0]
    except ConfigurationError:
        raise StorageError(
            f"{source}: option {name!r} is not known to this version of Weir\n"
            "  fix: resume with the version that started the run"
        ) from None


def _text(value: Plain) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _dashed(option: str) -> str:
    return option.replace("_", "-")


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
    return decorated(command, tuple(map(_option, OPTIONS)))


def state_options(command: CommandT) -> CommandT:
    """The options about keyed state, which ``weir resume`` has as well."""
    return decorated(command, tuple(map(_option, _OF_STATE)))


def _option(option: str) -> Callable[[CommandT], CommandT]:
    one = OPTIONS[option]
    about, dashes = one.about, f"--{_dashed(option)}"
    default = about.none if one.default is None else one.show(one.default)
    words = f"{about.text} [default: {default}]"
    if option in _FLAGS:
        return click.option(f"{dashes}/--no-{_dashed(option)}", default=None, help=words)
    kind: Any = None
    if option == "mode" or about.choices:
        kind = OneOf(modes() if option == "mode" else about.choices)
    elif one.kind is WHOLE:
        kind = AtLeast(about.least or 0)
    elif one.kind is SWITCH:
        kind = click.BOOL
    may_be_none = one.optional and one.default is not None and "none" not in one.kind.metavar
    metavar = f"{one.kind.metavar}|none" if may_be_none else one.kind.metavar
    return click.option(dashes, type=kind, metavar=None if kind else metavar, help=words)


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
        click.option("--table", is_flag=True, help="Print tables of tasks and checkpoints before the summary."),
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




def _with_a_place(_context: click.Context, _option: click.Parameter, path: str | None) -> str | None:
    """Refuse a place where no file can be made before anything runs, not after a search of an hour."""
    if path is not None:
        from engine.view import check_place

        check_place(path)
    return path


html_option = click.option(
    "--html",
    metavar="FILE",
    callback=_with_a_place,
    help="Write a page about the run to FILE: it opens offline, and steps through the run. Slow.",
)
perfetto_option = click.option(
    "--perfetto",
    metavar="FILE",
    help="Write the run to FILE as a trace for ui.perfetto.dev: for runs too long for a page. Needs the extra trace.",
)


def decorated(command: CommandT, decorators: tuple[Callable[[CommandT], CommandT], ...]) -> CommandT:
    """A command with several options, listed in this order."""
    # The decorator applied last is listed first.
    for decorator in reversed(decorators):
        command = decorator(command)
    return command
