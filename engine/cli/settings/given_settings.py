"""The settings that a user gives beside the options: ``--preset``, ``--config FILE`` and ``-D`` / ``--set``.

A preset counts least, then come the file, ``-D`` and ``--set`` alike, and the options. All of them take our names of
settings and Flink's keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from engine.cli.settings.flink_keys import KEYS, other_spellings, reason_against, translate
from engine.cli.settings.run_options import Plain, RunOptions, decorated
from engine.cli.shell import OneOf
from engine.elements.errors import ConfigurationError
from engine.runtime.config import PRESETS, SETTINGS, find_setting, read_setting

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class GivenSettings:
    """``values`` by public name, ``origins`` as the user wrote each, and ``notes`` about what has no effect."""

    values: Mapping[str, Plain] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def with_options(self, options: Mapping[str, Plain | None]) -> GivenSettings:
        """With options of the command line, which count most."""
        typed = RunOptions.of(**options).values
        origins = {name: f"--{(SETTINGS[name].about.option or '').replace('_', '-')}" for name in typed}
        return _over(self, GivenSettings(typed, origins))

    def explained(self) -> list[str]:
        """A line for each setting that is not at its default, with where it came from."""
        preset = self.values.get("preset")
        found: dict[str, tuple[str, str]] = {}
        for name, text in PRESETS.get(str(preset), {}).items():
            found[name] = text, f"--preset {preset}"
        for name, value in self.values.items():
            text = SETTINGS[name].show(_read(name, value)) if name in SETTINGS else str(value)
            found[name] = text, self.origins[name]
        lines = [
            (f"{name} = {text}", origin)
            for name, (text, origin) in found.items()
            if name != "preset" and (name not in SETTINGS or text != SETTINGS[name].show(SETTINGS[name].default))
        ]
        width = max((len(first) for first, _ in lines), default=0)
        return [f"  {first:<{width}}  {origin}" for first, origin in sorted(lines)]


def given_settings(
    definitions: tuple[str, ...] = (), config_file: str | None = None, preset: str | None = None
) -> GivenSettings:
    """What the options of :func:`setting_options` give.

    Raises :class:`ConfigurationError` when a name is unknown, a key of Flink means nothing here (in a file, that is
    only noted), a value is invalid, or the file cannot be read.
    """
    named = GivenSettings() if preset is None else GivenSettings({"preset": preset}, {"preset": "--preset"})
    filed = {} if config_file is None else _file(config_file)
    typed = _definitions(definitions)
    notes: list[str] = []
    for key in [*filed]:
        if key not in KEYS and not _is_ours(key):
            notes.append(f"{config_file}: {key} has no effect: {_in_file(str(config_file), key)}")
            del filed[key]
    for key in typed:
        reason = None if _is_ours(key) else reason_against(key)
        if reason is not None:
            raise ConfigurationError(f"-D {key} has no effect here: {reason}\n  fix: leave it out")
    for key in [one for typed_key in typed for one in other_spellings(typed_key)]:
        filed.pop(key, None)
    # Keys of Flink from both places decide together: one may enable what the other sets.
    meant = translate({key: text for key, text in {**filed, **typed}.items() if key in KEYS})
    found = named
    for given, place in ((filed, f"{config_file}: "), (typed, "-D ")):
        is_typed = given is typed
        of_flink = {
            name: keys for name, keys in meant.keys.items() if any(key in typed for key in keys) == is_typed
        }
        values = {name: _plain(name, meant.values[name]) for name in of_flink}
        origins = {
            name: place + ", ".join(f"{key}={given[key]}" if key in given else key for key in keys)
            for name, keys in of_flink.items()
        }
        for key, text in given.items():
            if key not in KEYS:
                name = _public(key)
                values[name], origins[name] = _plain(key, text), f"{place}{key}={text}"
        found = _over(found, GivenSettings(values, origins))
    return GivenSettings(found.values, found.origins, (*notes, *meant.notes))


def _over(lower: GivenSettings, upper: GivenSettings) -> GivenSettings:
    below = dict(lower.values)
    if upper.values.get("mode", "aligned-timeout") != "aligned-timeout":
        below.pop("aligned_timeout", None)  # it belongs to the mode that counts no more
    return GivenSettings({**below, **upper.values}, {**lower.origins, **upper.origins}, lower.notes)


def _is_ours(key: str) -> bool:
    try:
        find_setting(key)
    except ConfigurationError:
        return False
    return True


def _public(key: str) -> str:
    one, task = find_setting(key)
    return one.name if task is None else f"{one.name}.{task}"


def _read(name: str, value: Plain) -> Any:
    return read_setting(name, value) if isinstance(value, str) else value


def _plain(name: str, text: str) -> Plain:
    """As :class:`RunOptions` has it: numbers and switches as values, all else as text."""
    value = read_setting(name, text)
    one, task = find_setting(name)
    if task is not None:
        return text
    return value if isinstance(value, int) and not one.kind.takes_text else one.show(value)


def _in_file(path: str, key: str) -> str:
    try:
        return str(reason_against(key))
    except ConfigurationError as error:
        if "did you mean" in str(error):
            raise ConfigurationError(f"{path}: {error}") from None
        return "it is neither ours nor a key of Flink that is known here"


def _definitions(texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for (name, equals, _), text in zip(pairs, texts, strict=True):
        if not equals or not name:
            raise ConfigurationError(f"--set {text!r} is not of the form NAME=VALUE; e.g. --set batch_size=1")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _file(path: str) -> dict[str, str]:
    """The keys of a YAML file, nested or flat, with their values as they are written."""
    import yaml

    try:
        content = yaml.load(Path(path).read_text("utf-8"), Loader=yaml.BaseLoader)  # texts, and nothing is constructed
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--config {path}: cannot be read ({error})") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"--config {path}: is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict | None):
        raise ConfigurationError(f"--config {path}: must hold keys with values, such as parallelism.default: 2")
    return dict(_flat(content or {}, ""))


def _flat(content: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        elif value != "":  # to Flink, a key without a value is not there
            yield f"{above}{name}", ";".join(map(str, value)) if isinstance(value, list) else value


def definition_option(command: CommandT) -> CommandT:
    """``-D`` and ``--set``, which are one option."""
    return click.option(
        "-D",
        "--set",
        "definitions",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting, by our name (cost.link_latency=2ms) or Flink's key (execution.checkpointing.interval=5s)."
        " Repeatable.",
    )(command)


def setting_options(command: CommandT) -> CommandT:
    """The options that make up :class:`GivenSettings`, a preset apart."""
    decorators = (
        definition_option,
        click.option(
            "--config", "config_file", metavar="FILE", help="Settings from a YAML file, such as Flink's config.yaml."
        ),
    )
    return decorated(command, decorators)


def preset_option(command: CommandT) -> CommandT:
    """``--preset``. A search has none: its times follow from the duration of the job without such costs."""
    return click.option(
        "--preset", type=OneOf(PRESETS), help="Costs of links, storage and records, so that checkpoints take time."
    )(command)
