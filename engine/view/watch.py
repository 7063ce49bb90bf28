"""A run in a notebook: the value of the cell is the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.explore.run import Subject
from engine.faults.fault import parse_fault
from engine.faults.injector import FaultInjector
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.report.checkpoint_table import checkpoint_table
from engine.report.verdict import judge_run
from engine.runtime.config import config_of
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.kernel import ChoiceRecorder
from engine.view.page import framed, write_page
from engine.view.recorder import Recorder
from engine.view.single import RunFace, run_page


@dataclass(frozen=True, slots=True)
class Watched:
    """A run with its page. A notebook shows the page; :meth:`save` writes it to a file."""

    result: ExecutionResult
    text: str
    height: int = 760

    def __repr__(self) -> str:
        return f"<Watched {self.result!r}>"

    def _repr_html_(self) -> str:
        return framed(self.text, "A run of Weir", self.height)

    def save(self, path: str) -> None:
        """Write the page. Raises :class:`engine.elements.errors.ConfigurationError` when that is impossible."""
        write_page(path, self.text)


def watch(job: Job, *, faults: Sequence[str] = (), output_dir: str = ".", **settings: Any) -> Watched:
    """Run a job and record it. ``faults``: in their text form, as of ``--fault``; ``settings``: as of ``Job.run``, but
    for ``storage``. A failed job is a result."""
    config = config_of(settings)
    recorder, oracle = Recorder(Subject(lambda _: job, label=job.name)), CutOracle()
    choices = ChoiceRecorder(config.seed)
    injector = FaultInjector([parse_fault(one) for one in faults], choices=choices)
    execution = Execution(
        recorder.of_run(injector.in_run(job.plan()), output_dir),
        config,
        output_dir=output_dir,
        instruments=[recorder.observe, oracle],
        choices=choices,
        interference=injector,
    )
    injector.install(execution)
    result = recorder.run(execution)
    verdict = judge_run(result, oracle, config.protocol)
    table = checkpoint_table(result.checkpoints, job.plan(), config, oracle)
    name = f"{job.name}: mode {config.mode}"
    lines = [(f"verdict {verdict.name}", f"{verdict.name}: {verdict.reason}")]
    return Watched(result, run_page(name, recorder, RunFace(name, None, table), lines))
