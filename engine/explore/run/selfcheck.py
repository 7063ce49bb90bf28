"""The self-check: does one job with one seed do the same twice, down to the bytes that it stores?

Everything below promises determinism; the self-check tests it on a whole job, user's functions included. Two runs
in separate surroundings, in memory, are compared in four respects, each of which can differ alone:

* how the run ended;
* the *choices* that it drew, in order: a difference means that another choice was requested (or another seed used);
* its *trace*, event by event: a difference means that something happened otherwise;
* its *files*, byte by byte: checkpoints, and the output of sinks that write where they were told to. Only
  these show values: a function that returns another value each time may leave the trace unchanged.

The first difference of each kind is reported, because it is the nearest to the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from engine.observe.trace_events import Instrument, TraceEvent
from engine.runtime.execution import Execution
from engine.runtime.kernel import Choice
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.snapshots import CheckpointStorage

_EVENT_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts that an execution of the self-check is built with. Both runs get fresh ones.

    ``storage``      for checkpoints; its files are compared;
    ``file_system``  an empty one in memory, for jobs that read no real files: the files of their sinks are compared;
    ``instruments``  must be attached, or the traces cannot be compared.
    """

    storage: CheckpointStorage
    file_system: FileSystem
    instruments: Sequence[Instrument]


ExecutionFactory = Callable[[Surroundings], Execution]
"""Builds one execution of the job, not yet run, with the given surroundings."""


@dataclass(frozen=True, slots=True)
class RunFootprint:
    """The remains of one run."""

    state: str
    error: str | None
    events: int
    trace_digest: str
    choices: int
    choice_digest: str
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SelfCheckReport:
    """Both runs, and every difference between them; no difference is the good news."""

    first: RunFootprint
    second: RunFootprint
    differences: tuple[str, ...]

    @property
    def deterministic(self) -> bool:
        """Whether the two runs were the same."""
        return not self.differences

    def describe(self) -> str:
        """For people: one line when all is well, else one per difference."""
        if self.deterministic:
            one = self.first
            return (
                f"deterministic: {one.events} events ({one.trace_digest[:16]}), {one.choices} choices"
                f" ({one.choice_digest[:16]}), {len(one.files)} files are the same in both runs"
            )
        return "not deterministic:\n" + "\n".join(f"  {difference}" for difference in self.differences)


def self_check(
    first: ExecutionFactory, second: ExecutionFactory | None = None, *, job_name: str = "job"
) -> SelfCheckReport:
    """Run a job twice and compare.

    ``second`` is another way to build the same run; by default ``first`` is called twice.
    """
    first_tape = _EventTape()
    first_run, first_choices = _run(first, first_tape, job_name)
    second_tape = _EventTape(first_tape.digests)
    second_run, second_choices = _run(first if second is None else second, second_tape, job_name)
    differences = (
        *_ending_differences(first_run, second_run),
        *_choice_differences(first_choices, second_choices),
        *second_tape.differences(),
        *_file_differences(first_run.files, second_run.files),
    )
    return SelfCheckReport(first_run, second_run, differences)


class _EventTape:
    """An instrument: a short digest per event, compared with those of an earlier run as they come."""

    def __init__(self, expected: Sequence[bytes] | None = None) -> None:
        self.digests: list[bytes] = []
        self._expected = expected
        self._whole = blake2b(digest_size=32)
        self._previous = "the beginning"
        self._difference: str | None = None

    def __call__(self, event: TraceEvent) -> None:
        text = repr(event)
        digest = blake2b(text.encode(), digest_size=_EVENT_DIGEST_BYTES).digest()
        if self._expected is not None and self._difference is None:
            number = len(self.digests)
            if number >= len(self._expected):
                self._difference = f"trace: the second run goes on behind event {number} with {text}"
            elif self._expected[number] != digest:
                self._difference = (
                    f"trace: event {number + 1} of the second run is another: {text} (behind {self._previous})"
                )
            self._previous = text
        self.digests.append(digest)
        self._whole.update(text.encode())

    def hexdigest(self) -> str:
        return self._whole.hexdigest()

    def differences(self) -> tuple[str, ...]:
        assert self._expected is not None
        if self._difference is not None:
            return (self._difference,)
        if len(self.digests) < len(self._expected):
            missing = len(self._expected) - len(self.digests)
            return (f"trace: the second run ends {missing} events earlier, behind {self._previous}",)
        return ()


def _run(factory: ExecutionFactory, tape: _EventTape, job_name: str) -> tuple[RunFootprint, Sequence[Choice]]:
    checkpoints, sinks = MemoryFileSystem(), MemoryFileSystem()
    execution = factory(Surroundings(CheckpointStorage(checkpoints, "/checkpoints", job_name), sinks, (tape,)))
    result = execution.run()
    footprint = RunFootprint(
        state=result.state,
        error=None if result.error is None else str(result.error),
        events=len(tape.digests),
        trace_digest=tape.hexdigest(),
        choices=len(result.choices.log),
        choice_digest=result.choices.digest(),
        files={**_files("checkpoints", checkpoints), **_files("output", sinks)},
    )
    assert footprint.events, "the factory built an execution without the instruments it was given"
    return footprint, tuple(result.choices.log)


def _files(label: str, file_system: FileSystem) -> dict[str, bytes]:
    return {f"{label}:{path}": file_system.read_bytes(path) for path in file_system.walk_files("/")}


def _ending_differences(first: RunFootprint, second: RunFootprint) -> tuple[str, ...]:
    if (first.state, first.error) == (second.state, second.error):
        return ()
    return (
        f"end: the first run {first.state} ({first.error or 'no error'}),"
        f" the second {second.state} ({second.error or 'no error'})",
    )


def _choice_differences(first: Sequence[Choice], second: Sequence[Choice]) -> tuple[str, ...]:
    for number, (one, other) in enumerate(zip(first, second, strict=False), start=1):
        if one != other:
            return (f"choices: number {number} is {tuple(one)} in the first run, {tuple(other)} in the second",)
    if len(first) != len(second):
        return (f"choices: {len(first)} in the first run, {len(second)} in the second",)
    return ()


def _file_differences(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> tuple[str, ...]:
    differences = []
    for path in sorted({**first, **second}):
        if path not in second:
            differences.append(f"files: {path} is there only after the first run")
        elif path not in first:
            differences.append(f"files: {path} is there only after the second run")
        elif first[path] != second[path]:
            differences.append(f"files: {path} differs from byte {_first_difference(first[path], second[path])} on")
    return tuple(differences)


def _first_difference(one: bytes, other: bytes) -> int:
    shorter = min(len(one), len(other))
    return next((index for index in range(shorter) if one[index] != other[index]), shorter)
