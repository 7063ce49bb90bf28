"""``Job.run``: every setting by its name, the surroundings, and the result."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

import engine.job_runner
from engine import CollectionSource, FileSink, Job, JobFailedError
from engine.elements.errors import ConfigurationError, StorageError
from engine.elements.setting_fields import Setting
from engine.observe.trace_events import RunEnded, TraceEvent
from engine.report import RunResult
from engine.runtime.config import SETTINGS, CheckpointInterval, JobSettings, RunConfig
from engine.runtime.execution import Execution
from state_backends.files import MemoryFileSystem
from tests.hash_seeds import printed
from tests.runtime.config import typed_settings

OF_RUNS = {name: one for name, one in SETTINGS.items() if name not in JobSettings.__dataclass_fields__}


def totals(found: list[int] | None = None, numbers: int = 1_000) -> Job:
    job = Job("totals", parallelism=2)
    stream = job.source(CollectionSource(range(numbers)), name="numbers", parallelism=1)
    stream.key_by(lambda n: n % 5).reduce(lambda a, b: a + b, name="sum").collect([] if found is None else found)
    return job


def as_typed(one: Setting) -> Any:
    """The default as a user types it: a time is a text."""
    if one.default is None or not (one.kind.takes_text or isinstance(one.default, CheckpointInterval)):
        return one.default
    return one.show(one.default)


def config_of_run(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> RunConfig:
    """The configuration that a run with these settings has."""
    seen: list[RunConfig] = []

    class Seen(Execution):
        def __init__(self, plan: Any, config: RunConfig, **surroundings: Any) -> None:
            seen.append(config)
            super().__init__(plan, config, **surroundings)

    monkeypatch.setattr(engine.job_runner, "Execution", Seen)
    totals(numbers=10).run(**settings)
    return seen[0]


def test_a_run_returns_its_result() -> None:
    """With the given settings, and a line about its end."""
    found: list[int] = []

    result = totals(found).run(mode="unaligned", checkpoint_interval="250us", state_backend="lsm", seed=7)

    assert isinstance(result, RunResult)
    assert len(found) == 1_000
    assert repr(result) == (
        "<RunResult finished: 1,000 records in 1.25 ms of virtual time, attempts: 1, completed checkpoints: 6>"
    )


def test_a_failed_run_raises_the_error_of_the_job() -> None:
    """It names the function that raised, and the record."""
    job = Job("failing")
    job.source(CollectionSource([1, 0])).map(lambda n: 1 // n, name="inverse").collect([])

    with pytest.raises(JobFailedError, match="inverse"):
        job.run(restart="none")


def test_python_looks_for_garbage_less_often_while_a_job_runs() -> None:
    """Its objects live as long as it does. Afterwards all is as before, also when the job has failed."""
    before, during = gc.get_threshold(), list[int]()

    def look(number: int) -> int:
        during.append(gc.get_threshold()[0])
        return 1 // number

    for numbers in ([1, 2], [1, 0]):
        job = Job("numbers")
        job.source(CollectionSource(numbers)).map(look).collect([])
        try:
            job.run(mode="none")
        except JobFailedError:
            assert numbers[-1] == 0
        assert gc.get_threshold() == before
    assert set(during) == {max(before[0], 50_000)}


def test_the_settings_of_the_table_are_typed() -> None:
    """Each name with its type and its text: an editor shows what the table says."""
    text = typed_settings.FILE.read_text("utf-8")

    assert text.partition(typed_settings.MARK)[2] == typed_settings.written()
    assert "    min_pause: str\n" in text


@pytest.mark.parametrize("name", OF_RUNS)
def test_every_setting_is_given_by_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its group, and by its dotted name; times are texts."""
    group, _, inner = name.rpartition(".")
    value = as_typed(OF_RUNS[name])

    assert config_of_run(monkeypatch, **{name: value}) == RunConfig()
    assert config_of_run(monkeypatch, **({group: {inner: value}} if group else {name: value})) == RunConfig()


def test_times_are_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those inside groups and mappings."""
    settings: dict[str, Any] = {
        "checkpoint_interval": "10000rec", "min_pause": "3us", "restart": "fixed:3:10ms", "retained": 4,
        "preset": "small-cluster", "cost": {"link_latency": "2us", "slow_links": {"numbers[0]": "3us"}},
        "acking": {"timeout": None},
    }  # fmt: skip
    config = config_of_run(monkeypatch, **settings)

    assert config.checkpoint_interval == CheckpointInterval(records=10_000)
    assert (config.min_pause_ns, config.retained, config.acking.timeout_ns) == (3_000, 4, None)
    assert config.cost.storage_latency_ns > 0, "the preset is read"
    assert (config.cost.link_latency_ns, config.cost.slow_links) == (2_000, {"numbers[0]": 3_000})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_sise": 1}, "run: there is no setting 'batch_sise'; did you mean 'batch_size'?"),
        ({"storge": "state"}, "run: there is no setting 'storge'; did you mean 'storage'?"),
        ({"min_pause_ns": 3}, "run: there is no setting 'min_pause_ns'; did you mean 'min_pause'?"),
        ({"cost": {"link_latenzy": "1ms"}}, "no setting 'cost.link_latenzy'; did you mean 'cost.link_latency'"),
        ({"xyzzy": 1}, "run: there is no setting 'xyzzy'; all of them: docs/configuration.md"),
        ({"savepoint_dir": "here"}, "run: there is no setting 'savepoint_dir'"),
        ({"parallelism": 2}, r"run: parallelism belongs to the job; write Job\(name, parallelism=...\)"),
        ({"cost": 3}, "run: cost is 3 of type int; write cost={'source_record': '1us'}"),
        ({"min_pause": 3}, "run: min_pause is 3; write it with a unit: min_pause='3ns'"),
        ({"min_pause": 1.5}, "min_pause_ns is 1.5; it must be a whole number"),
        ({"min_pause": "soon"}, "min pause 'soon' is not a time"),
        ({"batch_size": 0}, "batch_size is 0; it must be at least 1"),
        ({"failover": "regional"}, "must be one of full, region; did you mean 'region'"),
        ({"cost": {"slow_links": {"a": "soon"}}}, "cost model: slow links 'soon' is not a time"),
        ({"cost": {"slow_links": {"a": 1.5}}}, r"slow_links\['a'\] is 1.5; it must be a whole number"),
        ({"cost": {"stragglers": {"a": "x"}}}, r"stragglers\['a'\] is 'x' of type str; write stragglers\['a'\]=3"),
        ({"kills": "sum[1]@3ms"}, r"run: kills is 'sum\[1\]@3ms' of type str; write kills=\['count\[1\]@3ms'\]"),
        ({"kills": ["sum[1]"]}, "not of the form NAME@TIME"),
        ({"kills": ["summ@3ms"]}, "there is no task 'summ'; did you mean 'sum'"),
        ({"output_dir": 3}, "run: output_dir is 3 of type int; write output_dir='out'"),
        ({"storage": "s3://bucket/state"}, "run: storage is 's3://bucket/state'; it must be a local directory"),
        ({"on": "sprak"}, "'sprak' is no place to run a job\n  fix: spark, or spark=MASTER"),
        ({"on": "spark"}, "run: on='spark' needs a directory for checkpoints that all executors see"),
        ({"on": "spark", "storage": "state", "kills": ["sum@3ms"]}, "run: kills works in the simulator only"),
        ({"restore": True}, "run: restore=True needs the directory to restore from; add storage='state'"),
    ],
)
def test_a_wrong_setting_says_what_to_write(settings: dict[str, Any], message: str) -> None:
    """The nearest name, or the table's own error for a value."""
    with pytest.raises(ConfigurationError, match=message):
        totals().run(**settings)


def test_a_run_has_surroundings() -> None:
    """A kill, an instrument, and a file system with a place for output."""
    job, files, seen = Job("lines"), MemoryFileSystem(), list[TraceEvent]()
    job.source(CollectionSource(range(1_000)), name="numbers").map(str).sink(FileSink("rows"), name="rows")

    result = job.run(
        checkpoint_interval="250us", kills=["numbers@600us"], instruments=[seen.append], file_system=files,
        output_dir="/o",
    )  # fmt: skip

    assert result.attempts == 2
    assert RunEnded in map(type, seen)
    assert [path for path in files.walk_files("/o") if path.startswith("/o/rows/")]


def test_a_storage_directory_is_gone_on_with_and_never_begun_twice(tmp_path: Path) -> None:
    """A second run would commit the output of the first one again, so it says that it resumes the first one."""
    first = totals().run(storage=tmp_path / "state", checkpoint_interval="250us")
    with pytest.raises(StorageError, match="holds checkpoints of job 'totals'"):
        totals().run(storage=tmp_path / "state")
    second = totals().run(storage=str(tmp_path / "state"), restore=True)

    assert (first.source_records, second.source_records) == (1_000, 0)
    assert (first.execution.incarnation, second.execution.incarnation) == (1, 3)


def test_importing_the_engine_loads_the_port_alone() -> None:
    """Of our modules; the runner and the runtime are loaded with the first run."""
    program = "import sys, engine; print(*sorted(one for one in sys.modules if one.split('.')[0] == 'engine'))"

    assert printed(program, "0").split() == ["engine", "engine.graph", "engine.graph.running"]
