"""The table of all settings: each is a field of a dataclass, where its default, its meaning and Flink's key stand.

The command line, searches and the pages are read from it, and :func:`config_of` makes a configuration of any names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engine.elements.errors import ConfigurationError
from engine.elements.setting_fields import Setting, declared, setting, settle
from engine.elements.suggestions import nearest
from engine.protocols.acking.settings import AckingSettings
from engine.runtime.config.cost import CostModel
from engine.runtime.config.run_config import RunConfig
from state_backends.base import UPPER_BOUND_MAX_PARALLELISM

PRESETS: Mapping[str, Mapping[str, str]] = {
    "small-cluster": {
        "cost.source_record": "2us",
        "cost.record": "2us",
        "cost.link_latency": "250us",
        "cost.link_bytes_per_s": "125000000",
        "cost.storage_latency": "5ms",
        "cost.storage_bytes_per_s": "100000000",
    }
}
"""Costs by the name of a preset. ``small-cluster``: some machines of one rack, as docs/configuration.md explains."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Settings of a run that concern the job and its places, not the engine."""

    parallelism: int | None = setting(
        None, "Subtasks of every operator that names no number of its own.", least=1, none="the number in the job file",
        option="parallelism", flink=("parallelism.default",), flink_default="1",
    )  # fmt: skip
    max_parallelism: int | None = setting(
        None, "Key groups of every operator that names no number of its own.",
        least=1, most=UPPER_BOUND_MAX_PARALLELISM, none="the number in the job file",
        flink=("pipeline.max-parallelism",), flink_default="-1",
    )  # fmt: skip
    storage: str | None = setting(
        None, "Directory or URL of the checkpoints, as --storage names it.", none="memory",
        flink=("execution.checkpointing.dir", "state.checkpoints.dir", "state.backend.fs.checkpointdir"),
        flink_default="none",
    )  # fmt: skip
    savepoint_dir: str | None = setting(
        None, "Directory of savepoints, as --savepoint-dir names it.", none="beside the checkpoints or the output",
        flink=("execution.checkpointing.savepoint-dir", "state.savepoints.dir", "savepoints.state.backend.fs.dir"),
        flink_default="none",
    )  # fmt: skip
    preset: str | None = setting(
        None, "Costs that a cluster would have, as --preset names them.", choices=tuple(PRESETS), none="no costs"
    )

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
_BY_NAME_OF_TASK = ("cost.stragglers", "cost.slow_links", "service")


@lru_cache(maxsize=1024)
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


def _preset_values(preset: object) -> Mapping[str, Any]:
    """The settings of a preset, ``None`` = none. Raises :class:`ConfigurationError` when there is none of that name."""
    chosen = SETTINGS["preset"].settled(preset)
    return {} if chosen is None else {name: read_setting(name, text) for name, text in PRESETS[chosen].items()}


def config_of(values: Mapping[str, object]) -> RunConfig:
    """The configuration with these settings, by any of their names; times may be texts. Settings of the job are
    left out.

    Raises :class:`ConfigurationError` when there is no such setting, or a value cannot work, alone or beside another.
    """
    found: dict[str, dict[str, Any]] = {"": {}, "cost": {}, "acking": {}}
    given = [(*find_setting(name), value) for name, value in {**_preset_values(values.get("preset")), **values}.items()]
    # Whole mappings first: what is said of one task stands, whichever came first.
    for one, task, value in given:
        if task is None:
            found[one.owner][one.field] = value
    for one, task, value in given:
        if task is not None:
            whole = one.settled(found[one.owner].get(one.field, {}))
            found[one.owner][one.field] = {**whole, task: value}
    run = {field: value for field, value in found[""].items() if field not in JobSettings.__dataclass_fields__}
    return RunConfig(cost=CostModel(**found["cost"]), acking=AckingSettings(**found["acking"]), **run)
