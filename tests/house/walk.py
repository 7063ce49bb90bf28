"""How far one record, and one barrier, walk through the program: the code that a reader who follows them opens.

The job reads lines of a file, maps them, sums them by key and writes a file: two tasks, for ``key_by`` separates source
and map from reduce and sink. ``python -m tests.house.walk`` prints both walks, call by call, and their figures.

A *call* is one of a function of the program, comprehensions apart; a *class* is the one of the object a method was
called on; a *switch* is a call in another file than the call before, a *room* the folder of a file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Any, NamedTuple

from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import Execution
from operators.files.formats import TextFormat
from operators.files.reading import FileSource
from operators.files.sinks import FileSink
from state_backends.files import MemoryFileSystem
from tests.house.project import PACKAGES, ROOT

RECORD_NS = 1_000_000
"""The time that one record takes; all else takes no virtual time."""
CHECKPOINT_NS = 3_500_000
"""The first checkpoint begins here. After its third record the source rests until that is over."""
_WARM_RECORDS = 2
"""So many records come before the one that is followed: what is made once, such as an open file, is there by then."""


class Call(NamedTuple):
    """One call of a function: in which file of the checkout, of which object, by which name."""

    path: str
    kind: str
    function: str
    depth: int

    @property
    def room(self) -> str:
        return str(PurePath(self.path).parent)


@dataclass
class Walk:
    """The calls of one way, in their order, and the kernel events that they came in."""

    calls: list[Call] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, int]:
        pairs = list(zip(self.calls, self.calls[1:], strict=False))
        return {
            "kernel events": len(self.events),
            "calls": len(self.calls),
            "functions": len({(call.path, call.function) for call in self.calls}),
            "files": len({call.path for call in self.calls}),
            "rooms": len({call.room for call in self.calls}),
            "classes": len({call.kind for call in self.calls if call.kind}),
            "switches between files": sum(one.path != next_one.path for one, next_one in pairs),
            "switches between rooms": sum(one.room != next_one.room for one, next_one in pairs),
        }


def _path_in_program(code: CodeType) -> str | None:
    path = PurePath(code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    inside = path.relative_to(ROOT)
    return inside.as_posix() if inside.parts[0] in PACKAGES else None


def _kind_of(frame: FrameType) -> str:
    """The class of the object that a method was called on, with its module; empty for a plain function."""
    code = frame.f_code
    if not code.co_argcount or code.co_varnames[0] not in ("self", "cls"):
        return ""
    owner: Any = frame.f_locals.get(code.co_varnames[0])
    kind = owner if isinstance(owner, type) else type(owner)
    return f"{kind.__module__}.{kind.__qualname__}"


def follow(action: Callable[[], object]) -> list[Call]:
    """The calls of functions of the program while ``action`` runs."""
    calls: list[Call] = []
    depths: dict[FrameType | None, int] = {}

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        path, function = _path_in_program(frame.f_code), frame.f_code.co_qualname
        is_comprehension = function.rpartition(".")[2] in ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")
        depths[frame] = depth = depths.get(frame.f_back, -1) + (path is not None and not is_comprehension)
        if path is not None and not is_comprehension:
            calls.append(Call(path, _kind_of(frame), function, depth))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls


class TwoTasks:
    """The job, event by event."""

    def __init__(self) -> None:
        files = MemoryFileSystem()
        files.make_dirs("/in")
        with files.open_write("/in/lines") as file:
            file.write(b"a 1\nb 2\na 3\nb 4\na 5\nb 6\na 7\nb 8\n")
        job = Job("two tasks")
        lines = job.source(FileSource("/in/lines", TextFormat()), name="lines")
        pairs = lines.map(str.split, name="split").key_by(lambda pair: pair[0])
        pairs.reduce(lambda one, other: (one[0], int(one[1]) + int(other[1])), name="sum").sink(FileSink("sums"))
        self.run = Execution(
            job.plan(),
            RunConfig(
                batch_size=1,
                checkpoint_interval=CheckpointInterval(time_ns=CHECKPOINT_NS),
                cost=CostModel(source_record_ns=RECORD_NS),
                seeded_schedule=False,
            ),
            file_system=files,
            output_dir="/out",
        )
        self.start_ns = self.run.begin()

    @property
    def completed(self) -> int:
        return self.run.manager.coordinator.statistics.completed

    def step(self, walk: Walk | None = None) -> None:
        """Let the next kernel event happen; ``walk`` is told of it."""
        if walk is None:
            self.run.run_events(1)
            return
        event = self.run.kernel.pending()[0]
        walk.events.append(f"{event.target.name}.{event.operation}")
        entry = "Kernel.run"
        found = follow(lambda: self.run.run_events(1))
        # The code that runs the events is not part of any way.
        first = 1 + next(at for at, call in enumerate(found) if call.function == entry)
        depth = found[first].depth
        walk.calls += [call._replace(depth=call.depth - depth) for call in found[first:] if call.depth >= depth]

    def run_until(self, at_ns: int) -> None:
        """Let everything happen that comes before this time after the start."""
        while self.run.kernel.pending()[0].time_ns < self.start_ns + at_ns:
            self.step()

    def follow_instant(self) -> Walk:
        """Everything that happens at the next instant."""
        walk = Walk()
        at_ns = self.run.kernel.pending()[0].time_ns
        while self.run.kernel.pending()[0].time_ns == at_ns:
            self.step(walk)
        return walk


def _second_job() -> TwoTasks:
    """One that finds the caches of the process filled, so that its way is the same each time."""
    TwoTasks().run.run_events()
    return TwoTasks()


def walk_of_record() -> Walk:
    """One record, from its line in the file to its line in the sink's part."""
    job = _second_job()
    job.run_until((1 + _WARM_RECORDS) * RECORD_NS)
    walk = job.follow_instant()
    assert job.run.manager.sources.records == 1 + _WARM_RECORDS, job.run.manager.sources.records
    return walk


def walk_of_barrier() -> Walk:
    """One barrier, from the timer that triggers the checkpoint to the commit of its rows."""
    job = _second_job()
    job.run_until((1 + _WARM_RECORDS) * RECORD_NS)
    job.run.manager.tasks[0, 0].rest(CHECKPOINT_NS)
    job.run_until(CHECKPOINT_NS)
    assert job.run.manager.sources.records == 1 + _WARM_RECORDS, job.run.manager.sources.records
    walk = job.follow_instant()
    assert job.completed == 1, "the checkpoint takes virtual time: its way cannot be told from that of records"
    return walk


def main() -> None:
    walks = {"one record": walk_of_record(), "one barrier": walk_of_barrier()}
    for title, walk in walks.items():
        print(f"== {title}: {', '.join(walk.events)}")
        for call in walk.calls:
            print(f"{'  ' * call.depth}{call.function}  {call.path}")
    for title, walk in walks.items():
        print(f"{title}: " + ", ".join(f"{count} {what}" for what, count in walk.figures().items()))


if __name__ == "__main__":
    main()
