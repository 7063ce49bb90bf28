"""The savepoints of a case: when one is taken, in which form, and how a new job resumes from it.

An order has a text form, used in reports, tokens and regression tests::

    savepoint@12us                                the job continues, and the savepoint is not used
    savepoint:native@12us                         the same, in the form of its state backend
    stop@12us->no-claim                           the job stops with it; a new job resumes from it without owning it
    drain@12us->claim,parallelism=3               event time ends first; the new job owns it, and has other settings
    cancel@12us->legacy,state_backend=lsm         the user cancels the job when told that the savepoint is complete

The form is ``KIND[:native]@TIME[->CLAIM MODE[,NAME=VALUE]…]``. Instants count from the start of the case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.checkpoint.coordinator import RestoreMode
from engine.elements.durations import duration_text, parse_duration_ns
from engine.elements.errors import ConfigurationError
from engine.elements.events import SavepointFormat, StopMode

if TYPE_CHECKING:
    from engine.explore.cases.case import Setting

SAVEPOINT, STOP, DRAIN, CANCEL = "savepoint", "stop", "drain", "cancel"
KINDS = (SAVEPOINT, STOP, DRAIN, CANCEL)
"""How the job continues: it runs on; it stops with the savepoint; it stops at the end of event time; its user cancels
it once the savepoint is complete."""

CLAIM_MODES = tuple(mode.value for mode in RestoreMode)
_NO_CLAIM = RestoreMode.NO_CLAIM.value
_STOP_MODES = {STOP: StopMode.SUSPEND, DRAIN: StopMode.TERMINATE}


@dataclass(frozen=True, slots=True)
class Savepoint:
    """One savepoint that the user of a case asks for.

    ``kind``      how the job continues after it;
    ``at_ns``     when it is requested, since the start of the case, in the process that is alive then;
    ``native``    whether keyed state is written in the form of its backend, instead of the canonical one;
    ``claim``     who owns the savepoint from then on: ``no-claim``, ``claim`` or ``legacy``;
    ``settings``  settings of the new job that differ, as in a case. The mode stays: the output is judged by it.
    """

    kind: str
    at_ns: int
    native: bool = False
    claim: str = _NO_CLAIM
    settings: Mapping[str, Setting] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem = None
        if self.kind not in KINDS:
            problem = f"there is no {self.kind!r}; there are: {', '.join(KINDS)}"
        elif self.at_ns < 0:
            problem = f"its instant is {self.at_ns} ns; a case starts at 0"
        elif self.claim not in CLAIM_MODES:
            problem = f"there is no claim mode {self.claim!r}; there are: {', '.join(CLAIM_MODES)}"
        elif not all(map(_is_readable, self.settings.items())):
            problem = "the name or value of a setting cannot be written with others in one line"
        elif "mode" in self.settings:
            problem = "the mode of a case is one for all its jobs; set it in the config of the case"
        elif not self.ends_job and (self.settings or self.claim != _NO_CLAIM):
            problem = f"no job goes on from it; write {STOP}, {DRAIN} or {CANCEL} instead of {SAVEPOINT}"
        if problem is not None:
            raise ConfigurationError(f"savepoint of a case: {problem}")

    @property
    def ends_job(self) -> bool:
        """Whether another job resumes from it."""
        return self.kind != SAVEPOINT

    @property
    def stop(self) -> StopMode | None:
        """How the job stops with it, ``None`` = it does not stop."""
        return _STOP_MODES.get(self.kind)

    @property
    def mode(self) -> RestoreMode:
        """Who owns it from then on."""
        return RestoreMode(self.claim)

    @property
    def form(self) -> SavepointFormat:
        return SavepointFormat.NATIVE if self.native else SavepointFormat.CANONICAL

    def __str__(self) -> str:
        what = f"{self.kind}{':native' if self.native else ''}@{duration_text(self.at_ns)}"
        if not self.ends_job:
            return what
        settings = "".join(f",{name}={_written(value)}" for name, value in sorted(self.settings.items()))
        return f"{what}->{self.claim}{settings}"


_TEXT = re.compile(
    r"(?P<kind>[a-z]+)(?P<native>:native)?@(?P<time>[^@,>-]+)(?:->(?P<claim>[a-z-]+)(?P<settings>(?:,[^,=]+=[^,=]*)*))?"
)


def parse_savepoint(text: str) -> Savepoint:
    """The order that a text describes: ``parse_savepoint(str(order)) == order``. Raises :class:`ConfigurationError` if
    the text has another form."""
    match = _TEXT.fullmatch(text.strip())
    if match is None or (match["claim"] is None) != (match["kind"] == SAVEPOINT):
        raise ConfigurationError(
            f"savepoint {text!r} is not of the form KIND[:native]@TIME[->CLAIM-MODE[,NAME=VALUE]...]; for instance"
            " savepoint@12us, or stop@12us->no-claim,parallelism=3"
        )
    pairs = [pair.partition("=") for pair in (match["settings"] or "").split(",") if pair]
    return Savepoint(
        match["kind"],
        parse_duration_ns(match["time"], f"the time of savepoint {text!r},"),
        match["native"] is not None,
        match["claim"] or _NO_CLAIM,
        {name: setting_of(value) for name, _, value in pairs},
    )


_WORDS: Mapping[str, Setting] = {"true": True, "false": False, "none": None}


def setting_of(text: str) -> Setting:
    """A setting as it is typed: a whole number, ``true``, ``false``, ``none``, else text."""
    return int(text) if re.fullmatch(r"-?\d+", text) else _WORDS.get(text, text)


def _written(value: Setting) -> str:
    return next((word for word, meant in _WORDS.items() if meant is value), str(value))


def _is_readable(setting: tuple[str, Setting]) -> bool:
    name, value = setting
    text = _written(value)
    return bool(name) and not {",", "="} & {*name, *text} and setting_of(text) == value
