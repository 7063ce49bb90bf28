"""``IterativeStream``: a loop in a job, closed by a feedback edge (Flink: ``IterativeStream``).

::

    numbers = job.source(...).iterate(name="numbers")
    step = numbers.map(one_step)
    numbers.close_with(step.filter(is_not_done))
    step.filter(is_done).sink(...)

``iterate`` adds an operator, the head of the iteration, which passes on incoming and fed-back records. It is an
operator like any other: the operators after it may be keyed, connected or windowed, and iterations may be nested.
Feedback edges are the only edges that may close a cycle.

``docs/iterations.md`` says what a loop means for time, for checkpoints and for the end of the job.
"""

from __future__ import annotations

from engine.elements.errors import JobGraphError
from engine.graph.options import OperatorOptions, check_options, check_type
from engine.graph.stream import Outlet, Stream


class IterativeStream(Stream):
    """The records that enter a loop, and those that are fed back."""

    __slots__ = ()

    def close_with(self, feedback: Stream) -> Stream:
        """Feed the records of ``feedback`` back to the head of the iteration; returns ``feedback``.

        ``feedback`` must come from this iteration. It is spread like any stream: by its partitioner if it has one, else
        to the head's subtask of the same number where parallelisms are equal, else in turn. Only keyed feedback (and
        feedback dealt out in turn) can be given to other subtasks when the loop is restored with another parallelism.
        An iteration may be closed with several streams.
        """
        check_type("close_with", "feedback", feedback, Stream)
        self._check_same_job("close_with", feedback)
        head, graph = self._outlets[0].node_id, self._job.graph
        for outlet in feedback._outlets:
            if outlet.node_id == head:
                raise JobGraphError(
                    f"close_with: {self!r} would feed its records back to itself as they are\n"
                    "  fix: put an operator between the two, one that lets some records out of the loop"
                )
            if not graph.leads_to(head, outlet.node_id):
                raise JobGraphError(
                    f"close_with: {feedback!r} does not come from iteration {graph.name_of(head)!r}\n"
                    "  fix: feed back a stream of the iteration; join others with union before .iterate()"
                )
        for outlet in feedback._outlets:
            graph.add_edge(
                outlet.node_id, head, partitioner=outlet.partitioner, side_tag=outlet.side_tag, is_feedback=True
            )
        return feedback


def iterate(stream: Stream, options: OperatorOptions) -> IterativeStream:
    """See ``Stream.iterate``."""
    from operators.basic import IterationHeadOperator

    check_options("iterate", options)
    job = stream._job
    head = job.add_operator("iteration", IterationHeadOperator, options)
    job.graph.set_iteration_head(head)
    stream._feed(head)
    return IterativeStream(job, (Outlet(head),))
