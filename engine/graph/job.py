"""``Job``: the root of the fluent API. It owns the job graph and turns it into a plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, Literal, Unpack

from engine.elements.errors import JobGraphError
from engine.elements.operator import OperatorFactory
from engine.elements.source import Source
from engine.graph.expansion import expand
from engine.graph.explain import explain_mermaid, explain_text
from engine.graph.explain_svg import explain_svg
from engine.graph.job_graph import ChainingStrategy, JobGraph, NodeRole
from engine.graph.naming import name_problem
from engine.graph.options import OperatorOptions, check_count, check_methods, check_options, check_type
from engine.graph.plan import ExecutionPlan
from engine.graph.running import run_job
from engine.graph.stream import Outlet, Stream
from engine.graph.validation import validate

if TYPE_CHECKING:
    from engine.graph.run_settings import Settings
    from engine.graph.running import Result
    from operators.time import WatermarkStrategy


_OVERRIDE: ContextVar[tuple[int | None, int | None]] = ContextVar("parallelism override", default=(None, None))


@contextmanager
def parallelism_override(parallelism: int | None, max_parallelism: int | None = None) -> Iterator[None]:
    """Jobs made inside have these defaults, whatever they ask for; ``None`` overrides nothing.

    Operators that name numbers of their own keep them. It is meant for running a job written by others.
    """
    token = _OVERRIDE.set((parallelism, max_parallelism))
    try:
        yield
    finally:
        _OVERRIDE.reset(token)


class Job:
    """A stream-processing program: sources, operators on their records, and sinks.

    ``name``             the name of the run and its storage directory;
    ``parallelism``      number of subtasks of every operator that does not say otherwise;
    ``max_parallelism``  number of key groups of every operator that does not say otherwise; Flink's default
                         for the parallelism of each operator without it. State can never be spread over
                         more subtasks.

    Building a job runs nothing, and the graph may be looked at with ``explain`` before it runs. Every
    method raises ``JobGraphError`` for a request that cannot be run.
    """

    def __init__(self, name: str, *, parallelism: int = 1, max_parallelism: int | None = None) -> None:
        problem = name_problem(name) or _directory_problem(name)
        if problem:
            raise JobGraphError(f"Job: {problem}")
        override, max_override = _OVERRIDE.get()
        parallelism = parallelism if override is None else override
        max_parallelism = max_parallelism if max_override is None else max_override
        check_count("Job", "parallelism", parallelism)
        if max_parallelism is not None:
            check_count("Job", "max_parallelism", max_parallelism)
        self.name = name
        self.parallelism = parallelism
        self.max_parallelism = max_parallelism
        self.graph = JobGraph()
        self._planned: tuple[int, ExecutionPlan] | None = None
        self._claimed_files: set[str] = set()
        self._shared: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Job({self.name!r}, {len(self.graph.nodes())} operators)"

    def _repr_html_(self) -> str:
        """For notebooks: the picture of the plan; of a graph that cannot run, its problems."""
        try:
            return self.plan()._repr_html_()
        except JobGraphError as error:
            return f"<p>{escape(repr(self))}</p><pre>{escape(str(error))}</pre>"

    def source(
        self, source: Source, *, watermarks: WatermarkStrategy | None = None, **options: Unpack[OperatorOptions]
    ) -> Stream:
        """The records of ``source``, with the event times and watermarks of ``watermarks`` when it is given."""
        from operators.sources import SourceOperator, table_kind

        table = table_kind(source)
        if table is not None:
            raise JobGraphError(f"source: a {table[0]} (df) is no source\n  fix: for rows as dicts, write {table[1]}")
        check_methods("source", "source", source, "splits", "open_split")
        if watermarks is not None:
            from operators.time import WatermarkStrategy

            check_type("source", "watermarks", watermarks, WatermarkStrategy)
        check_options("source", options)
        # A source whose splits come from an enumerator makes its operators itself.
        operator_factory = getattr(source, "operator_factory", lambda _: None)
        factory = operator_factory(watermarks) or partial(SourceOperator, source, watermarks)
        node_id = self.add_operator("source", factory, options, role=NodeRole.SOURCE)
        return Stream(self, (Outlet(node_id),))

    def add_operator(
        self,
        kind: str,
        factory: OperatorFactory,
        options: OperatorOptions,
        *,
        role: NodeRole = NodeRole.TRANSFORM,
        requires_key: bool = False,
    ) -> int:
        """Add an operator to the graph with the job's defaults for missing ``options``; returns its id."""
        parallelism, max_parallelism = options.get("parallelism"), options.get("max_parallelism")
        return self.graph.add_operator(
            kind,
            factory,
            parallelism=self.parallelism if parallelism is None else parallelism,
            max_parallelism=self.max_parallelism if max_parallelism is None else max_parallelism,
            name=options.get("name"),
            uid=options.get("uid"),
            role=role,
            requires_key=requires_key,
            chaining=ChainingStrategy.ALWAYS if options.get("chain", True) else ChainingStrategy.NEVER,
        )

    def claim_files(self, sink: object) -> None:
        """A sink may say the names of its files, as ``part_files``. Raises :class:`JobGraphError` when another sink has
        the same: each would delete or replace what the other has written."""
        pattern = getattr(sink, "part_files", None)
        if pattern is None:
            return
        if pattern in self._claimed_files:
            raise JobGraphError(
                f"two sinks of job {self.name!r} write files named {pattern}, and would replace each other's\n"
                "  fix: give one of them another path or prefix, or unite their streams before one sink"
            )
        self._claimed_files.add(pattern)

    def let_share(self, sink: object) -> None:
        """A sink may have a method ``share_in_job(shared)``: in this dict, which belongs to the job, sinks keep what
        only one of them may open."""
        share = getattr(sink, "share_in_job", None)
        if share is not None:
            share(self._shared)

    def validate(self) -> None:
        """Raise one ``JobGraphError`` that names every problem of the graph and how to fix it."""
        validate(self.graph, self.name)

    def plan(self) -> ExecutionPlan:
        """The valid graph expanded into subtasks and channels; computed once, until the graph changes."""
        if self._planned is None or self._planned[0] != self.graph.revision:
            self.validate()
            self._planned = (self.graph.revision, expand(self.graph, self.name))
        return self._planned[1]

    def run(self, **settings: Unpack[Settings]) -> Result:
        """Run the job to its end: ``job.run(mode="unaligned", checkpoint_interval="5ms", kills=["count[1]@3ms"])``.

        :class:`engine.graph.run_settings.Settings` has all settings. Raises the job's own error when it fails, and
        ``ConfigurationError`` for a setting that cannot work.
        """
        return run_job(self, settings)

    def explain(self, format: Literal["text", "mermaid", "svg"] = "text") -> str:
        """The plan drawn as text, as a Mermaid flowchart for a page, or as a picture."""
        if format == "text":
            return explain_text(self.plan())
        if format == "mermaid":
            return explain_mermaid(self.plan())
        if format == "svg":
            return explain_svg(self.plan())
        raise JobGraphError(f"explain: there is no format {format!r}; use 'text', 'mermaid' or 'svg'")


def _directory_problem(name: str) -> str | None:
    """Checkpoints of a job lie in a directory of its name."""
    if "/" in name or "\\" in name or name.startswith("."):
        return f"name {name!r} cannot be the name of a directory; leave out '/', '\\' and a leading '.'"
    return None
