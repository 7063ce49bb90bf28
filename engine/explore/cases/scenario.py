"""How a job file asks for its job to be searched: ``SCENARIO``, a dict at the top level of the file.

A job of a few records proves something only under certain settings: batches of one record, a checkpoint every two
records. These settings belong to the job, so ``weir check FILE`` reads them from its file::

    SCENARIO = {
        "batch_size": 1,
        "checkpoint_interval": "2rec",
        "cost.source_record_ns": 0,
        "modes": ["aligned", "at-least-once"],
        "crashes": 1,
        "promises": {"aligned": "exactly-once", "at-least-once": "at-least-once"},
    }

The names are those of settings (:mod:`engine.runtime.config.settings_table`), and besides:

``modes``        the modes that the scenario covers; by default the one that ``mode`` names;
``crashes``      how many crashes a check tries at most (default 1);
``checkpoints``  how many checkpoints a check lets begin (default: as many as the interval gives);
``savepoints``   the user's actions that a check tries at every moment: ``savepoint``, ``stop``, ``drain``;
``faults``       kinds of faults that a search should try, or faults in their text form;
``promises``     by mode: the strongest promise that holds there; tests check it against the file;
``params``       parameters of the function ``job()``, by name, as texts: with them a large job makes itself small.

The command line overrides these values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.elements.errors import ConfigurationError, JobFileError
from engine.elements.suggestions import nearest
from engine.explore.cases.case import Case, Setting
from engine.explore.cases.case_settings import case_setting, run_config
from engine.explore.cases.promises import PROMISES
from engine.explore.cases.savepoint_plans import KINDS
from engine.faults.fault import FAULT_KINDS, parse_fault
from engine.protocols.protocol_names import protocol_named
from engine.runtime.config import RunConfig

_BESIDES = ("modes", "crashes", "checkpoints", "savepoints", "faults", "promises", "params")


@dataclass(frozen=True, slots=True)
class Scenario:
    """See the module. ``config``: the settings of every case; it has no mode when there are several. ``names_modes``:
    whether the file names its modes, instead of using the default one."""

    config: Mapping[str, Setting] = field(default_factory=dict)
    modes: tuple[str, ...] = field(default_factory=lambda: (RunConfig().mode,))  # no backend is loaded to show help
    crashes: int = 1
    checkpoints: int | None = None
    faults: tuple[str, ...] = ()
    promises: Mapping[str, str] = field(default_factory=dict)
    savepoints: tuple[str, ...] = ()
    names_modes: bool = False

    def case(self, mode: str | None = None, **settings: Setting) -> Case:
        """A case of this scenario in one of its modes (by default the first), without any fault.

        Settings that apply to one mode only, such as ``aligned_timeout_ns``, are left out in other modes.
        """
        chosen = protocol_named(self.modes[0] if mode is None else mode).name
        config = {**self.config, **settings, "mode": chosen}
        if chosen != "aligned-timeout":
            config.pop("aligned_timeout_ns", None)
        return Case(config=config)


def read_scenario(raw: object, path: str = "the job file") -> Scenario:
    """The scenario that ``SCENARIO`` describes; without one, the default. Raises :class:`JobFileError` when a name is
    unknown or a value is invalid."""
    if not isinstance(raw, Mapping):
        raise _problem(path, f"it is a {type(raw).__name__}, and must be a dict")
    config: dict[str, Any] = {}
    for name, value in raw.items():
        if not isinstance(name, str):
            raise _problem(path, f"{name!r} is no name of a setting")
        if name not in (*_BESIDES, "mode"):
            config.update([_setting(name, value, path)])
    mode = raw.get("mode")
    modes = _texts(raw, "modes", path) or ((RunConfig().mode,) if mode is None else (mode,))
    scenario = Scenario(
        config,
        modes,
        _count(raw, "crashes", 1, path),
        None if raw.get("checkpoints") is None else _count(raw, "checkpoints", 0, path),
        _texts(raw, "faults", path),
        _promises(raw, modes, path),
        _texts(raw, "savepoints", path),
        "modes" in raw or "mode" in raw,
    )
    _check(scenario, path)
    return scenario


def _check(scenario: Scenario, path: str) -> None:
    for mode in scenario.modes:
        try:
            run_config(scenario.case(mode))
        except ConfigurationError as error:
            raise _problem(path, str(error)) from error
    for kind in scenario.savepoints:
        if kind not in KINDS:
            raise _problem(path, f"savepoints: {kind!r} is none of {', '.join(KINDS)}")
    for text in scenario.faults:
        if text not in FAULT_KINDS:
            try:
                parse_fault(text)
            except ConfigurationError as error:
                raise _problem(path, str(error)) from error


def _setting(name: str, value: object, path: str) -> tuple[str, Setting]:
    try:
        return case_setting(name, value)
    except ConfigurationError as error:
        close = nearest(name, _BESIDES)
        raise _problem(path, f"{error}{'' if close is None else f'; did you mean {close!r}?'}") from error


def _texts(raw: Mapping[str, Any], name: str, path: str) -> tuple[str, ...]:
    value = raw.get(name, ())
    if isinstance(value, str) or not all(isinstance(one, str) for one in value):
        raise _problem(path, f"{name} is {value!r}, and must be a list of texts")
    return tuple(value)


def _count(raw: Mapping[str, Any], name: str, default: int, path: str) -> int:
    value = raw.get(name, default)
    if type(value) is not int or value < 0:
        raise _problem(path, f"{name} is {value!r}, and must be a whole number from 0")
    return value


def _promises(raw: Mapping[str, Any], modes: tuple[str, ...], path: str) -> Mapping[str, str]:
    value = raw.get("promises", {})
    if not isinstance(value, Mapping):
        raise _problem(path, f"promises is {value!r}, and must be a dict from modes to promises")
    for mode, promise in value.items():
        if mode not in modes or promise not in PROMISES:
            raise _problem(
                path, f"promises: {mode!r}: {promise!r} must be one of its modes with one of {', '.join(PROMISES)}"
            )
    return dict(value)


def search_params(raw: object, path: str = "the job file") -> Mapping[str, str]:
    """The parameters that a file requests for searches; they are needed before its job can be made. Raises
    :class:`JobFileError` when they are not texts by name."""
    value = raw.get("params", {}) if isinstance(raw, Mapping) else {}
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for one in value.items() for text in one):
        raise _problem(path, f"params is {value!r}, and must be a dict from names to texts")
    return dict(value)


def _problem(path: str, what: str) -> JobFileError:
    return JobFileError(f"{path}: SCENARIO: {what}")
