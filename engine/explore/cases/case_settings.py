"""The settings of a case as the configuration of a run: which settings a case may have, and which it may not."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from engine.checkpoint.restore import FixedDelayRestart
from engine.elements.errors import ConfigurationError
from engine.explore.cases.case import Case
from engine.protocols.acking.settings import AckingSettings
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig

RESTART_DELAY_NS = 1_000


def run_config(case: Case) -> RunConfig:
    """The configuration of a case. Raises :class:`ConfigurationError` when a setting is unknown or its value is
    invalid."""
    settings: dict[str, Any] = {"restart": FixedDelayRestart(None, RESTART_DELAY_NS)}
    cost: dict[str, Any] = {}
    acking: dict[str, Any] = {}
    for name, value in case.config.items():
        if name.startswith("cost."):
            _put_cost(cost, name.removeprefix("cost."), value)
        elif name.startswith("acking."):
            _put_acking(acking, name.removeprefix("acking."), value)
        elif name == "checkpoint_interval":
            settings[name] = None if value is None else CheckpointInterval.parse(str(value))
        elif name in _SETTINGS:
            settings[name] = _typed(RunConfig, name, name, value)
        elif name == "parallelism":
            if value is not None and type(value) is not int:
                raise ConfigurationError(f"setting 'parallelism' is {value!r}; it must be a number or none")
        else:
            raise ConfigurationError(
                f"a case has no setting {name!r}; it takes those of RunConfig, cost.NAME and acking.NAME"
            )
    if case.checkpoints is not None:
        settings["checkpoint_interval"] = None
    return RunConfig(seed=case.seed, cost=CostModel(**cost), acking=AckingSettings(**acking), **settings)


_SETTINGS = {one.name for one in fields(RunConfig)} - {"restart", "seed", "cost", "acking"}
_COSTS = {one.name for one in fields(CostModel)}
_COSTS_BY_NAME = ("stragglers", "slow_links")


_TYPES = {"int": int, "str": str, "bool": bool, "None": type(None)}


def _typed(owner: type[RunConfig | CostModel], name: str, setting: str, value: object) -> object:
    """The value, if its type fits the setting: a case may come from a command, a file or a token."""
    annotation = next(str(one.type) for one in fields(owner) if one.name == name)
    # Any other annotation names a type that is a number.
    named = [one for one in annotation.split(" | ") if one in _TYPES] or ["int"]
    if type(value) not in (_TYPES[one] for one in named):
        raise ConfigurationError(f"setting {setting!r} is {value!r}; it must be of type {' or '.join(named)}")
    return value


def _put_acking(acking: dict[str, Any], name: str, value: object) -> None:
    known = {one.name for one in fields(AckingSettings)}
    if name not in known:
        raise ConfigurationError(f"a case has no setting 'acking.{name}'; acking has {', '.join(sorted(known))}")
    acking[name] = value


def _put_cost(cost: dict[str, Any], name: str, value: object) -> None:
    """``cost.record_ns`` is a number; ``cost.stragglers.count[0]`` is the number for one name."""
    kind, _, who = name.partition(".")
    if kind not in _COSTS or (kind in _COSTS_BY_NAME) != bool(who):
        raise ConfigurationError(f"a case has no setting 'cost.{name}'; the cost model has {', '.join(sorted(_COSTS))}")
    value = _typed(CostModel, kind, f"cost.{name}", value)
    if who:
        cost.setdefault(kind, {})[who] = value
    else:
        cost[kind] = value
