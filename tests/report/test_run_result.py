"""What ``Job.run`` returns: a verdict and tables that other tools take."""

from __future__ import annotations

from typing import Any

import pytest

from engine import CollectionSource, CollectSink, ConfigurationError, Job, RunResult
from engine.report import ResultTable
from tests.hash_seeds import printed


def sums(**settings: Any) -> RunResult:
    job = Job("sums")
    numbers = job.source(CollectionSource(range(1_000)), name="numbers")
    totals = numbers.key_by(lambda n: n % 5).reduce(lambda a, b: a + b, name="sum")
    totals.filter(lambda n: n < 3).collect([], name="few")
    totals.collect([], name="out")
    return job.run(batch_size=50, checkpoint_interval="250us", **settings)


def test_the_tables_of_a_run_that_recovered() -> None:
    """Checkpoints in order, the restart with the work it lost, metrics by Flink's names, records by sink."""
    result = sums(kills=["sum@600us"])

    assert result.checkpoints["checkpoint_id"] == list(range(1, len(result.checkpoints) + 1))
    assert {*result.checkpoints["status"]} == {"COMPLETED"}
    (recovery,) = result.recoveries
    restored = result.checkpoints["triggered_at_ns"][recovery["checkpoint_id"] - 1]
    assert (recovery["attempt"], recovery["checkpoint_id"], recovery["tasks"]) == (2, 2, None)
    # Killed at 600 us, deployed again after 10 ms.
    assert recovery["restored_at_ns"] == 10_600_000
    assert recovery["lost_ns"] == recovery["restored_at_ns"] - restored
    metrics = {(one["scope"], one["name"]): one["value"] for one in result.metrics}
    assert metrics["job", "numRestarts"] == 1
    assert result.attempts == 2
    assert (result.source_records - result.replayed_records, len(result.collected)) == (1_000, 1_000 + 3)
    assert result.makespan_ns == result.execution.ended_ns - result.execution.started_ns


def test_a_run_without_a_checkpoint_goes_back_to_its_start() -> None:
    """The lost time is that since the start."""
    (recovery,) = sums(kills=["sum@100us"]).recoveries

    assert recovery["checkpoint_id"] is None
    assert recovery["lost_ns"] == recovery["restored_at_ns"]


def test_checkpoints_are_judged_where_it_is_asked_for() -> None:
    """Without an audit the verdict is never valid, and says how to get one."""
    audited, plain = sums(audit=True), sums()

    assert audited.verdict.name == "valid"
    assert (plain.verdict.name, plain.verdict.reason.endswith("none was judged: add audit=True")) == ("unknown", True)
    assert sums(mode="none").verdict.name == "valid", "a mode that promises nothing"
    # The audit changes nothing.
    assert plain.execution.choices.digest() == audited.execution.choices.digest()


def test_audits_are_switches() -> None:
    """A text is refused."""
    with pytest.raises(ConfigurationError, match="audit is 'yes' of type str; write audit=True"):
        sums(audit="yes")


def test_a_table_as_arrow_and_pandas() -> None:
    """Columns with their types; what is missing is null."""
    table = ResultTable.of_records("rows", ("name", "size", "ratio"), [{"name": "a", "size": 2}, {"ratio": 0.5}])

    assert table.to_arrow().to_pydict() == {"name": ["a", None], "size": [2, None], "ratio": [None, 0.5]}
    assert [str(one) for one in table.to_arrow().schema.types] == ["string", "int64", "double"]
    assert table.to_pandas()["size"].sum() == 2


def test_columns_of_a_table_have_types_that_others_take() -> None:
    """Texts beside numbers are texts, and so is a number beyond 64 bits; a column without values is no column of
    nothing, which Spark cannot write."""
    rows = [{"timeout": "2m", "seed": 1, "large": 1 << 70}, {"timeout": 5}]
    table = ResultTable.of_records("rows", ("timeout", "large", "error", "mean_ns"), rows)

    assert [str(one) for one in table.to_arrow().schema.types] == ["string", "string", "string", "double"]
    assert table.to_arrow()["timeout"].to_pylist() == ["2m", "5"]
    assert table.to_arrow()["large"].to_pylist() == [str(1 << 70), None]


def test_a_table_shows_itself() -> None:
    """One line in a console, aligned rows with units in print; in a notebook its first rows, with markup as text."""
    times = ResultTable("times", ("name", "mean_ns"), [("a", 1_500_000), ("bcd", None)])
    assert str(times) == "name  mean_ns\n   a    1.5ms\n bcd         "
    sizes = ResultTable("sizes", ("mean_bytes", "low_bytes"), [(1_536.0, 20)])
    assert str(sizes) == "mean_bytes  low_bytes\n   1.5 KiB       20 B"
    table = ResultTable("rows", ("name", "share"), [("<b>", 1 / 3)] * 21)

    assert repr(table) == "<rows: 21 rows of name, share>"
    html = table._repr_html_()
    assert html.count("<tr>") == 1 + 20
    assert "&lt;b&gt;" in html
    assert "0.333333" in html
    assert "and 1 more row<" in html
    assert (len(str(table).splitlines()), len(table.text().splitlines())) == (1 + 20 + 1, 1 + 21)


def test_a_result_shows_itself() -> None:
    """One line, and in a notebook the verdict and the checkpoints."""
    result = sums(audit=True)

    assert repr(result).startswith("<RunResult finished: 1,000 records in ")
    assert "<p>valid: " in result._repr_html_()
    assert "<caption>checkpoints</caption>" in result._repr_html_()


def test_a_column_that_does_not_exist_is_refused() -> None:
    """With the nearest name."""
    with pytest.raises(ConfigurationError, match=r"table rows has no column 'nam'; did you mean 'name'\? Choose"):
        ResultTable("rows", ("name",), [])["nam"]
    with pytest.raises(ConfigurationError, match="table rows has no column 'size'; choose one of name, mean"):
        ResultTable("rows", ("name", "mean"), [])["size"]


def test_a_result_loads_neither_arrow_nor_pandas() -> None:
    """They are imported by the table that becomes one."""
    program = (
        "import sys; from engine import CollectionSource, Job; job = Job('a'); job.source(CollectionSource([1]))"
        ".collect([]); r = job.run(); r.checkpoints, r.recoveries, r.metrics, r.collected, r.verdict;"
        " print(*(n for n in ('pyarrow', 'pandas', 'pyspark', 'rich') if n in sys.modules), 'nothing else')"
    )

    assert printed(program, "0").split() == ["nothing", "else"]


def test_collected_records_belong_to_their_sinks() -> None:
    """A sink gives the list it was made with."""
    records: list[int] = []
    assert CollectSink(records).records is records
