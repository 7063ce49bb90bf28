"""The drawings of a plan, to the byte."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given

from engine import CollectionSource, Job
from engine.graph.expansion import expand
from engine.graph.explain import explain_mermaid, explain_text
from engine.graph.explain_svg import explain_svg
from engine.graph.job_graph import JobGraph
from engine.graph.partitioner import HashPartitioner
from engine.graph.plan import ExecutionPlan
from state_backends.base import STRING
from tests.graph.graphs import add_behind, add_sink, add_source, identity, valid_graphs

_SVG = "{http://www.w3.org/2000/svg}"


def small_plan() -> ExecutionPlan:
    """A word count whose malformed lines go to a sink of their own."""
    graph = JobGraph()
    lines = add_source(graph, "lines", 2)
    split = add_behind(graph, lines, "split", 2)
    words = add_behind(graph, split, "words", 2)
    keyed = HashPartitioner(identity, key_type=STRING)
    count = add_behind(graph, words, "count", 3, keyed, uid="word-count-v1")
    add_sink(graph, count, name='out "<1>"', parallelism=3)
    bad = add_sink(graph, name="bad lines", parallelism=2)
    graph.add_edge(split, bad, side_tag="malformed")
    late = add_sink(graph, name="late", parallelism=1)
    graph.add_edge(split, late, side_tag="late")
    return expand(graph, "word-count")


TEXT = """\
job word-count: 3 vertices, 6 subtasks, 8 channels
-> call inside the task   => channels to another task

[0] lines -> split -> (words, bad lines)   parallelism 2, max 128
    lines (source)
    └─ -> split
       ├─ -> words
       │  └─ => [1] count   hash, 6 channels
       ├─ -> side output malformed: bad lines (uid bad-lines)
       └─ => [2] late   side output late: rebalance, 2 channels

[1] count -> out "<1>"   parallelism 3, max 128
    count (keyed STRING, uid word-count-v1)
    └─ -> out "<1>" (uid out-1)

[2] late   parallelism 1, max 128
    late
"""

MERMAID = """\
flowchart LR
  subgraph v0["parallelism 2, max 128"]
    v0o0["lines (source)"]
    v0o1["split"]
    v0o2["words"]
    v0o3["bad lines (uid bad-lines)"]
    v0o0 --> v0o1
    v0o1 --> v0o2
    v0o1 -->|"side output malformed"| v0o3
  end
  subgraph v1["parallelism 3, max 128"]
    v1o0["count (keyed STRING, uid word-count-v1)"]
    v1o1["out #quot;#lt;1#gt;#quot; (uid out-1)"]
    v1o0 --> v1o1
  end
  subgraph v2["parallelism 1, max 128"]
    v2o0["late"]
  end
  v0o2 ==>|"hash, 6 channels"| v1o0
  v0o1 ==>|"side output late: rebalance, 2 channels"| v2o0
"""


def test_text() -> None:
    """Vertices, chains, parallelism, partitioners and channels, as text."""
    assert explain_text(small_plan()) == TEXT


def test_mermaid() -> None:
    """The same as a Mermaid flowchart, with special characters escaped."""
    assert explain_mermaid(small_plan()) == MERMAID


@given(valid_graphs())
def test_everything_is_drawn(graph: JobGraph) -> None:
    """Both drawings show every operator and every network edge exactly once."""
    plan = expand(graph, "job")
    text, mermaid = explain_text(plan), explain_mermaid(plan)

    tree = [line for line in text.splitlines() if line.startswith("    ")]
    assert len(tree) == len(plan.operators()) + len(plan.edges)
    assert sum("=> [" in line for line in tree) == len(plan.edges)
    assert mermaid.count("==>") == len(plan.edges)
    assert sum(line.endswith('"]') and "subgraph" not in line for line in mermaid.splitlines()) == len(plan.operators())


@given(valid_graphs())
def test_the_picture_has_every_vertex_and_edge(graph: JobGraph) -> None:
    """The picture is well-formed, has a box for each vertex and a curve for each edge, and no box lies on another."""
    plan = expand(graph, "job")
    picture = ElementTree.fromstring(explain_svg(plan))

    sides = ("x", "y", "width", "height")
    boxes = [tuple(int(one.attrib[side]) for side in sides) for one in picture.iter(f"{_SVG}rect")]
    curves = [one for one in picture.iter(f"{_SVG}path") if " C" in one.attrib["d"]]
    assert len(boxes) == len(plan.vertices)
    assert len(curves) == len(plan.edges)
    for x, y, width, height in boxes:
        assert x + width <= int(picture.attrib["width"])
        assert y + height <= int(picture.attrib["height"])
    assert not [
        (one, two) for one in boxes for two in boxes
        if one < two and one[0] < two[0] + two[2] and two[0] < one[0] + one[2]
        and one[1] < two[1] + two[3] and two[1] < one[1] + one[3]
    ]  # fmt: skip


def test_a_job_in_a_notebook() -> None:
    """A job and its plan show the picture, and one line as text; a graph that cannot run shows its problems."""
    job = Job("pictured")
    assert "<pre>job &#x27;pictured&#x27; cannot run: it has no source" in job._repr_html_()

    job.source(CollectionSource([1]), name="<numbers>").print(name="out")

    assert "&lt;numbers&gt; (source" in job._repr_html_()
    assert job.plan()._repr_html_() == job.explain("svg") == job._repr_html_()
    assert repr(job.plan()) == "<ExecutionPlan of job 'pictured': 1 vertex, 1 subtask, 0 channels>"


def test_undeclared_key_type() -> None:
    """A keyed operator without a declared key type is marked as keyed and nothing more."""
    graph = JobGraph()
    add_sink(graph, add_behind(graph, add_source(graph), "count", partitioner=HashPartitioner(identity)))

    text = explain_text(expand(graph, "job"))
    assert "    count (keyed)\n" in text
    assert "=> [1] count   hash, 1 channel\n" in text
