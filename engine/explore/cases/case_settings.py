"""The settings of a case as the configuration of a run: which settings a case may have, and which it may not.

A case names a setting by its field (``min_pause_ns``, ``cost.record_ns``) and has its plain value, as do tokens and
reports. :func:`case_setting` reads the input of users: any name of a setting, and times as texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.checkpoint.restore import FixedDelayRestart
from engine.elements.errors import ConfigurationError
from engine.elements.setting_fields import Setting as TableSetting
from engine.explore.cases.case import Case, Setting
from engine.runtime.config import CheckpointInterval, RunConfig, config_of, find_setting, read_setting

RESTART_DELAY_NS = 1_000

NOT_OF_A_CASE = ("restart", "seed", "max_parallelism", "storage", "savepoint_dir", "preset")
"""Settings that a search decides, or that its runs do not have."""


def run_config(case: Case) -> RunConfig:
    """The configuration of a case. Raises :class:`ConfigurationError` when a setting is unknown or its value is
    invalid."""
    settings: dict[str, Any] = {"restart": FixedDelayRestart(None, RESTART_DELAY_NS)}
    for name, value in case.config.items():
        one, task = _setting(name)
        if task is not None and type(value) is not int:
            raise ConfigurationError(f"setting {name!r} is {value!r}; it must be a whole number")
        settings[name] = one.settled(value) if task is None else value
    if case.checkpoints is not None:
        settings["checkpoint_interval"] = None
    return config_of({**settings, "seed": case.seed})


def case_setting(name: str, value: object) -> tuple[str, Setting]:
    """Convert a user's setting (any of its names; a value or its text) to the form in a case. Raises
    :class:`ConfigurationError` when a case has no such setting, or the value is invalid."""
    one, task = _setting(name)
    meant: Any = read_setting(name, value) if isinstance(value, str) else value
    if isinstance(meant, CheckpointInterval):
        meant = value  # the text is the plain value
    return one.field_name + ("" if task is None else f".{task}"), meant


def case_settings(values: Mapping[str, object]) -> dict[str, Setting]:
    """Several of them, which make sense together."""
    settings = dict(case_setting(name, value) for name, value in values.items())
    run_config(Case(config=settings))
    return settings


def _setting(name: str) -> tuple[TableSetting, str | None]:
    try:
        one, task = find_setting(name)
    except ConfigurationError as error:
        raise ConfigurationError(f"a case has no setting {name!r}: {error}") from None
    if one.name in NOT_OF_A_CASE:
        raise ConfigurationError(f"a case has no setting {name!r}: runs of a search have none of their own")
    if task is None and Mapping in one.kind.types:
        raise ConfigurationError(f"a case has no setting {name!r}: write {one.name}.NAME for each subtask")
    return one, task
