"""A fault as data: its kind, its target and its exact time; or its probability at each opportunity.

A fault has a text form, used on the command line, in reports and in regression tests::

    crash:count[1]@120us                    a subtask dies at an instant of virtual time
    crash:count[*]@before:snapshot.sync#2   the subtask of count that makes the second visit there dies
    crash:job manager@after:manifest.rename#1
    pause:count[0]@12us~5us                 it does nothing for 5 us
    lose:receive_acknowledge count[1]#1     the first acknowledgement of count[1] never arrives
    delay:a[0]->count[1] CheckpointBarrier#2~3us
    torn-write:*/_metadata*#1=17            the first such write leaves 17 bytes
    rescale:process@after:ack.send#3=4      the process dies there; it is resumed with parallelism 4

The form is ``KIND:TARGET[@TIME | @PHASE:POINT][#N][~DURATION][=AMOUNT]``; a target is a shell pattern (``[`` and ``]``
stand for themselves).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.elements.durations import duration_text, parse_duration_ns
from engine.elements.errors import ConfigurationError
from engine.observe.points import POINTS

TIME, POINT, MESSAGE, ELEMENT, CALL, EXTERNAL, START = (
    "time",
    "point",
    "message",
    "element",
    "call",
    "external",
    "start",
)
"""The opportunities that a kind counts: instants, visits of a named point, messages between job manager and tasks,
elements on channels, calls of a file system, requests to an external system, starts of a process."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """``group``: of the catalogue; ``by``: the opportunities that it counts; ``unsound``: it breaks an assumption of
    every protocol, so it must be requested explicitly."""

    group: str
    by: tuple[str, ...]
    meaning: str
    unsound: bool = False


FAULT_KINDS: Mapping[str, FaultKind] = {
    "crash": FaultKind("process", (TIME, POINT), "a task, a worker, the job manager or the whole process dies"),
    "pause": FaultKind("process", (TIME, POINT), "a task does nothing for a while; declared dead, it is a zombie"),
    "rescale": FaultKind("process", (TIME, POINT), "the process dies and is resumed with another parallelism"),
    "raise": FaultKind("user code", (POINT,), "a user's function raises"),
    "delay": FaultKind("channel", (ELEMENT,), "an element is under way for longer"),
    "slow": FaultKind("channel", (TIME,), "a task takes its elements more slowly for a while: backpressure"),
    "clog": FaultKind("channel", (TIME,), "channels carry nothing for a while, each between two times of its own"),
    "reorder": FaultKind("channel", (ELEMENT,), "an element overtakes the one in front of it", unsound=True),
    "drop": FaultKind("channel", (ELEMENT,), "an element is lost", unsound=True),
    "partition": FaultKind("control", (TIME,), "nothing passes between job manager and a task for a while"),
    "lose": FaultKind("control", (MESSAGE,), "a message between job manager and task is lost"),
    "duplicate": FaultKind("control", (MESSAGE,), "a message arrives twice"),
    "late": FaultKind("control", (MESSAGE,), "a message arrives later"),
    "torn-write": FaultKind("storage", (CALL,), "a prefix of a write is left, then an error"),
    "write-error": FaultKind("storage", (CALL,), "a write, fsync, rename or deletion fails; perhaps it was done"),
    "read-error": FaultKind("storage", (CALL,), "a read fails"),
    "bit-flip": FaultKind("storage", (CALL,), "a file is read with one bit flipped"),
    "truncate": FaultKind("storage", (CALL,), "a file is read without its end"),
    "missing": FaultKind("storage", (CALL,), "a file is not there"),
    "stale-listing": FaultKind("storage", (CALL,), "a listing does not show the newest names"),
    "disk-full": FaultKind("storage", (CALL, TIME), "no space is left, for a while"),
    "read-only": FaultKind("storage", (CALL, TIME), "nothing can be written, for a while"),
    "lose-unsynced": FaultKind("storage", (START,), "what was not fsynced is gone after the process died"),
    "delete-referenced": FaultKind("storage", (TIME,), "a file that a completed checkpoint needs is deleted"),
    "answer-lost": FaultKind("external", (EXTERNAL,), "a request is carried out, but its answer is lost"),
    "request-lost": FaultKind("external", (EXTERNAL,), "a request never reaches the external system"),
    "expire": FaultKind("external", (EXTERNAL,), "a transaction is given up by the external system: too old"),
    "late-marker": FaultKind("external", (EXTERNAL,), "a commit or abort of an older transaction comes late"),
    "fence": FaultKind("external", (EXTERNAL,), "another producer takes over the name"),
    "rewind": FaultKind("external", (START,), "the source goes on from another position than it was told"),
    "clock-jump": FaultKind("time", (TIME,), "the processing-time clock of a task jumps"),
    "skew": FaultKind("time", (START,), "the processing-time clock of a task is off"),
    "idle": FaultKind("time", (TIME,), "a source has nothing to read for a while"),
    "watermark-stall": FaultKind("time", (TIME,), "a task gets no watermarks for a while"),
    "restore-older": FaultKind("operator error", (START,), "a resume starts from an older checkpoint"),
    "wrong-directory": FaultKind("operator error", (START,), "a resume gets the directory of another job"),
    "change-uids": FaultKind("operator error", (START,), "a resume finds operators under other uids"),
}
"""Every kind of fault by its name."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault at an exact place: at an instant (``at_ns`` since the start of the run), or at the ``number``-th
    opportunity (from 1) that ``target`` matches, at a named ``point`` when the kind counts visits of points.

    ``for_ns``: how long, or how far; ``amount``: bytes, records, a parallelism, as the kind says.
    """

    kind: str
    target: str = "*"
    at_ns: int | None = None
    point: str | None = None
    phase: str = "before"
    number: int = 1
    for_ns: int = 0
    amount: int = 0

    def __post_init__(self) -> None:
        if self.kind not in FAULT_KINDS:
            raise ConfigurationError(f"there is no fault {self.kind!r}; there are: {', '.join(FAULT_KINDS)}")
        if self.point is not None:
            known = POINTS.get(self.point)
            if known is None and not self.point.startswith("user."):
                raise ConfigurationError(f"fault {self.kind}: there is no point {self.point!r}: {', '.join(POINTS)}")
            if known is not None and self.phase not in known.phases:
                raise ConfigurationError(
                    f"fault {self.kind}: at {self.point} one may fail {', '.join(known.phases)}, not {self.phase!r}"
                )
        if self.number < 1 or (self.at_ns is not None and self.at_ns < 0) or self.for_ns < 0:
            raise ConfigurationError(f"fault {self.kind}: opportunities count from 1, times from 0")

    def hits(self, name: str) -> bool:
        """Whether the target of the fault matches this name."""
        return matches(self.target, name)

    def __str__(self) -> str:
        where = f"@{duration_text(self.at_ns)}" if self.at_ns is not None else ""
        if self.point is not None:
            where = f"@{self.phase}:{self.point}"
        number = f"#{self.number}" if self.at_ns is None else ""
        duration = f"~{duration_text(self.for_ns)}" if self.for_ns else ""
        return f"{self.kind}:{self.target}{where}{number}{duration}{f'={self.amount}' if self.amount else ''}"


_TEXT = re.compile(
    r"(?P<kind>[a-z-]+):(?P<target>[^@#~=]+)"
    r"(?:@(?:(?P<phase>before|after|torn):(?P<point>[a-z.-]+)|(?P<time>[^@#~=:]+)))?"
    r"(?:#(?P<number>\d+))?(?:~(?P<duration>[^@#~=]+))?(?:=(?P<amount>-?\d+))?"
)


def parse_fault(text: str) -> Fault:
    """The fault that a text describes: ``parse_fault(str(fault)) == fault``. Raises :class:`ConfigurationError` if the
    text has another form."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(
            f"fault {text!r} is not of the form KIND:TARGET[@TIME | @PHASE:POINT][#N][~DURATION][=AMOUNT]; for instance"
            " crash:count[1]@120us, or crash:*@before:snapshot.sync#2"
        )
    time, duration = match["time"], match["duration"]
    return Fault(
        match["kind"],
        match["target"].strip(),
        None if time is None else parse_duration_ns(time, f"the time of fault {text!r},"),
        match["point"],
        match["phase"] or "before",
        int(match["number"] or 1),
        0 if duration is None else parse_duration_ns(duration, f"the duration of fault {text!r},"),
        int(match["amount"] or 0),
    )


def matches(pattern: str, name: str) -> bool:
    """Whether a name matches a shell pattern in which brackets stand for themselves."""
    return pattern in ("*", name) or fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


@dataclass(frozen=True, slots=True)
class FaultMix:
    """Faults by chance: how likely each kind is at each opportunity, in millionths, and how many there are at most.

    Each fault that strikes is drawn from the stream ``faults`` and kept as an exact :class:`Fault`.
    """

    per_million: Mapping[str, int] = field(default_factory=dict)
    most: int = 0

    def __post_init__(self) -> None:
        for kind, chance in self.per_million.items():
            if kind not in FAULT_KINDS:
                raise ConfigurationError(f"there is no fault {kind!r}; there are: {', '.join(FAULT_KINDS)}")
            if not 0 <= chance <= 1_000_000:
                raise ConfigurationError(f"the chance of fault {kind!r} is {chance}; write 0 to 1000000 millionths")
