"""Loops in the fluent API: what ``iterate`` and ``close_with`` make of a graph, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.elements.errors import JobGraphError
from engine.graph.expansion import plan_fingerprint
from engine.graph.job import Job
from engine.graph.loops import LoopPlan, find_loops
from engine.graph.plan import ExecutionPlan
from engine.graph.stream import Stream
from operators.sources import SequenceSource


def numbers(job: Job, **options: Any) -> Stream:
    return job.source(SequenceSource(0, 10), name="numbers", **options)


def closed(parallelism: int = 2, feedback: Callable[[Stream], Stream] = lambda stream: stream) -> Job:
    """A loop over two tasks."""
    job = Job("loop", parallelism=parallelism)
    loop = numbers(job).rebalance().iterate(name="loop")
    body = loop.key_by(lambda value: value).process(lambda value, ctx: [value], name="body")
    loop.close_with(feedback(body))
    body.collect([], name="out", chain=False)
    return job


def feedback_of(plan: ExecutionPlan) -> list[tuple[str, str, str]]:
    """Sender, receiver and partitioner of every feedback edge."""
    names = [vertex.name for vertex in plan.vertices]
    return [
        (names[edge.source_vertex], names[edge.target_vertex], edge.partitioner.name)
        for edge in plan.edges
        if edge.is_feedback
    ]


def problem_of(job: Job) -> str:
    with pytest.raises(JobGraphError) as caught:
        job.validate()
    text = str(caught.value)
    assert text.startswith(f"job {job.name!r} cannot run: ")
    return text.removeprefix(f"job {job.name!r} cannot run: ")


def test_feedback_leads_back_to_the_head() -> None:
    """The head is an operator with two input edges, one of which closes the loop; vertices keep their order."""
    plan = closed().plan()

    assert [vertex.name for vertex in plan.vertices] == ["numbers", "loop", "body", "out"]
    assert feedback_of(plan) == [("body", "loop", "forward")]
    assert [plan.edges[index].is_feedback for index in plan.vertices[1].input_edges] == [False, True]


def test_feedback_is_spread_like_any_stream() -> None:
    """Its partitioner spreads it. The default is forward between equal parallelisms, and rebalance between others."""
    spread = {
        "hash": lambda stream: stream.key_by(lambda value: value),
        "rebalance": Stream.rebalance,
        "broadcast": Stream.broadcast,
        "global": Stream.global_,
    }
    found = {name: feedback_of(closed(feedback=how).plan())[0][2] for name, how in spread.items()}
    job = Job("uneven", parallelism=2)
    loop = numbers(job).iterate(parallelism=3)
    loop.close_with(loop.map(str))
    loop.collect([])

    assert found == {name: name for name in spread}
    assert feedback_of(job.plan())[0][2] == "rebalance"


def test_a_chain_may_feed_itself() -> None:
    """The operators after the head may be chained to it. The edge back is always a channel, and is never chained."""
    job = Job("self", parallelism=2)
    loop = numbers(job).iterate(name="loop")
    body = loop.map(abs, name="body")
    loop.close_with(body.filter(bool, name="again"))
    body.print(name="out")
    plan = job.plan()

    assert [vertex.name for vertex in plan.vertices] == ["numbers", "loop -> body -> (again, out)"]
    assert feedback_of(plan) == [("loop -> body -> (again, out)",) * 2 + ("forward",)]
    feedback = [channel for channel in plan.channels if plan.edges[channel.edge].is_feedback]
    assert [(channel.sender_subtask, channel.receiver_subtask) for channel in feedback] == [(0, 0), (1, 1)]


def test_a_feedback_edge_leaves_the_other_inputs_unaligned() -> None:
    """Its records are stored in any case. A forward input, in contrast, keeps all inputs aligned."""
    plan, forward = closed().plan(), Job("forward")
    loop = numbers(forward).iterate()
    loop.close_with(loop.map(str).rebalance())
    loop.collect([])

    assert [plan.edges[index].supports_unaligned for index in plan.vertices[1].input_edges] == [True, True]
    head = forward.plan().vertices[1]
    assert [forward.plan().edges[index].supports_unaligned for index in head.input_edges] == [False, False]


def test_an_iteration_may_be_closed_with_several_streams() -> None:
    """An iteration can be closed with a union of streams, with a side output, and several times in a row."""
    job = Job("several")
    loop = numbers(job).iterate(name="loop")
    one, other = loop.map(abs, name="one", chain=False), loop.map(abs, name="other", chain=False)
    third = loop.process(lambda value, ctx: [value], name="third", chain=False)
    assert loop.close_with(one.union(other)) is not None
    loop.close_with(third.side_output("again"))
    loop.collect([])

    assert feedback_of(job.plan()) == [
        ("one", "loop -> collect", "forward"),
        ("other", "loop -> collect", "forward"),
        ("third", "loop -> collect", "forward"),
    ]


def test_only_feedback_changes_the_digest_of_a_plan() -> None:
    """An edge that leads on and an edge that leads back give two plans; the names of the edges tell them apart."""
    plan = closed().plan()
    straight = tuple(replace(edge, is_feedback=False) for edge in plan.edges)

    assert plan.fingerprint == plan_fingerprint(plan.vertices, plan.edges) == closed().plan().fingerprint
    assert plan.fingerprint != plan_fingerprint(plan.vertices, straight)
    assert plan.fingerprint != closed(feedback=Stream.rebalance).plan().fingerprint
    assert [edge.name for edge in plan.edges if edge.is_feedback] == ["body>>loop#0"]


def test_the_drawing_shows_what_leads_back() -> None:
    """In text by an arrow of its own with a legend, in Mermaid by a dotted one; other plans have neither."""
    job, straight = closed(), Job("straight")
    numbers(straight).print()

    assert "~> [1] loop   feedback: forward, 2 channels" in job.explain()
    assert "~> channels back to the head of an iteration" in job.explain()
    assert '  v2o0 -.->|"feedback: forward, 2 channels"| v1o0' in job.explain("mermaid")
    assert "~>" not in straight.explain()


def test_a_stream_from_elsewhere_cannot_close_an_iteration() -> None:
    """The stream must come from the head, without feedback on the way: not from another job or from before the head."""
    job = Job("loop")
    source = numbers(job)
    loop = source.iterate(name="loop")
    loop.collect([])

    with pytest.raises(JobGraphError, match="close_with: Stream\\(numbers\\) does not come from iteration 'loop'"):
        loop.close_with(source)
    with pytest.raises(JobGraphError, match="belongs to job 'other'"):
        loop.close_with(numbers(Job("other")))
    with pytest.raises(JobGraphError, match="feedback must be of type Stream, not None"):
        loop.close_with(None)  # type: ignore[arg-type]
    with pytest.raises(JobGraphError, match="would feed its records back to itself as they are"):
        loop.close_with(loop)
    with pytest.raises(JobGraphError, match="iterate has no option nme=; did you mean name="):
        source.iterate(nme="loop")  # type: ignore[call-arg]


def test_an_iteration_that_is_not_closed_is_refused() -> None:
    """Without feedback, it would be an operator that does nothing."""
    job = Job("open")
    numbers(job).iterate(name="loop").collect([])

    assert problem_of(job) == (
        "iteration 'loop' is not closed: nothing is fed back; call .close_with(feedback), or leave it out"
    )


def test_a_loop_that_nothing_leaves_is_refused() -> None:
    """The operators in it have outputs, but they feed only each other."""
    job = Job("circle")
    loop = numbers(job).iterate(name="loop")
    loop.close_with(loop.map(abs))

    assert problem_of(job).startswith("nothing leaves iteration 'loop': its records would be computed and dropped;")


def test_feedback_by_hand_is_judged_as_well() -> None:
    """Edges that the fluent API cannot make: to no head, to itself, from before, and around an operator alone."""
    wrong: dict[str, str] = {}
    for name in ("no head", "itself", "before", "alone"):
        job = Job("graph")
        graph, loop = job.graph, numbers(job).iterate(name="loop")
        body_stream = loop.map(abs, name="body")
        loop.close_with(body_stream)
        body_stream.print(name="out")
        source, head, body = (node.id for node in graph.nodes()[:3])
        if name == "alone":
            second = job.add_operator("iteration", graph.node(head).factory, {"name": "alone"})
            graph.set_iteration_head(second)
            graph.add_edge(second, body)
            graph.add_edge(body, second, is_feedback=True)
        else:
            ends = {"no head": (body, body), "itself": (head, head), "before": (source, head)}
            graph.add_edge(*ends[name], is_feedback=True)
        wrong[name] = problem_of(job).split(";")[0]

    assert wrong == {
        "no head": "the feedback edge from 'body' leads to 'body', which begins no iteration",
        "itself": "iteration 'loop' feeds its records back to itself as they are",
        "before": "iteration 'loop' is closed with records of 'numbers', to which it does not lead",
        "alone": "iteration 'alone' has no input but its own feedback",
    }


def test_the_loop_of_a_plan() -> None:
    """The plan lists the loop's subtasks, the channels between them, and the channels that lead into it."""
    plan = closed().plan()

    (loop,) = find_loops(plan)

    assert loop.subtasks == ((1, 0), (1, 1), (2, 0), (2, 1))
    edges = [edge for edge in plan.edges if edge.target_vertex in (1, 2) and edge.source_vertex in (1, 2)]
    inside = [channel.index for channel in plan.channels if plan.edges[channel.edge] in edges]
    assert loop.channels == tuple(inside)
    entering = [one.index for one in plan.channels if (one.sender_vertex, one.receiver_vertex) == (0, 1)]
    assert loop.inputs == tuple(entering)


def test_subtasks_that_never_meet_are_loops_of_their_own() -> None:
    """All edges of the loop are pointwise; operators after the loop are not part of it."""
    job = Job("slices", parallelism=2)
    loop = numbers(job).iterate(name="loop")
    body = loop.map(abs, name="body", chain=False)
    loop.close_with(body)
    body.collect([], name="out", parallelism=1)

    assert find_loops(job.plan()) == (
        LoopPlan(subtasks=((1, 0), (2, 0)), channels=(2, 4), inputs=(0,)),
        LoopPlan(subtasks=((1, 1), (2, 1)), channels=(3, 5), inputs=(1,)),
    )


def test_iterations_inside_each_other_are_one_loop() -> None:
    """Neither can end before the other. Two that follow each other are two loops."""
    nested, chain = Job("nested"), Job("chain")
    outer = numbers(nested).iterate(name="outer")
    inner = outer.rebalance().iterate(name="inner")
    body = inner.rebalance().map(abs, name="body")
    inner.close_with(body)
    outer.close_with(body)
    body.print()
    first = numbers(chain).iterate(name="first")
    first.close_with(first.map(abs))
    second = first.rebalance().iterate(name="second")
    second.close_with(second.map(abs))
    second.print()

    assert [loop.subtasks for loop in find_loops(nested.plan())] == [((1, 0), (2, 0), (3, 0))]
    assert [loop.subtasks for loop in find_loops(chain.plan())] == [((1, 0),), ((2, 0),)]
