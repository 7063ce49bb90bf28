"""The table of all settings: each is a field of a dataclass, where its default, its meaning and Flink's key stand.

The command line, searches and the pages are read from it, and :func:`config_of` makes a configuration of any names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.elements.errors import ConfigurationError
from engine.elements.setting_fields import Setting, declared, setting, settle
from engine.elements.suggestions import nearest
from engine.protocols.acking.settings import AckingSettings
from engine.runtime.config.cost import CostModel
from engine.runtime.config.run_config import RunConfig


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Settings of a run that concern the job and its places, not the engine."""

    parallelism: int | None = setting(
        None, "Subtasks of every operator that names no number of its own.", least=1, none="the number in the job file",
        option="parallelism", flink=("parallelism.default",), flink_default="1",
    )  # fmt: skip

    def __post_init__(self) -> None:
        settle(self)


_OWNERS: tuple[tuple[str, type], ...] = (
    ("", RunConfig), ("", JobSettings), ("cost", CostModel), ("acking", AckingSettings),
)  # fmt: skip

SETTINGS: Mapping[str, Setting] = {one.name: one for group, owner in _OWNERS for one in declared(owner, group)}
"""By public name."""

OPTIONS: Mapping[str, Setting] = {one.about.option: one for one in SETTINGS.values() if one.about.option is not None}
"""Those with an option of their own, by the name of the option."""

_BY_ANY_NAME = {**{one.field_name: one for one in SETTINGS.values()}, **OPTIONS, **SETTINGS}
_BY_NAME_OF_TASK = ("cost.stragglers", "cost.slow_links")


def find_setting(name: str) -> tuple[Setting, str | None]:
    """The setting of that name: its public one, that of its field, or that of its option. The second value is the
    subtask, vertex or operator in ``cost.stragglers.count[0]``.

    Raises :class:`ConfigurationError` with the nearest name when there is none.
    """
    for group in _BY_NAME_OF_TASK:
        if name.startswith(f"{group}.") and len(name) > len(group) + 1:
            return SETTINGS[group], name[len(group) + 1 :]
    if name in _BY_ANY_NAME:
        return _BY_ANY_NAME[name], None
    close = nearest(name, _BY_ANY_NAME)
    hint = "all of them: docs/configuration.md" if close is None else f"did you mean {close!r}?"
    raise ConfigurationError(f"there is no setting {name!r}; {hint}")


def read_setting(name: str, text: str) -> Any:
    """The value that a text means for the setting of that name. The name of a field says the unit of a time:
    ``min_pause_ns=3000``; so does that of one task's link."""
    one, task = find_setting(name)
    if text.isdecimal() and (task is not None or name.endswith("_ns")):
        return int(text)
    return one.parse(text) if task is None else one.parse(f"{task}={text}")[task]


def config_of(values: Mapping[str, object]) -> RunConfig:
    """The configuration with these settings, by any of their names; times may be texts. Settings of the job are
    left out.

    Raises :class:`ConfigurationError` when there is no such setting, or a value cannot work, alone or beside another.
    """
    found: dict[str, dict[str, Any]] = {"": {}, "cost": {}, "acking": {}}
    for name, value in values.items():
        one, task = find_setting(name)
        group = found[one.owner]
        if task is None:
            group[one.field] = value
        else:
            group.setdefault(one.field, {})[task] = value
    run = {field: value for field, value in found[""].items() if field not in JobSettings.__dataclass_fields__}
    return RunConfig(cost=CostModel(**found["cost"]), acking=AckingSettings(**found["acking"]), **run)
