"""`--on spark`: the places it names, its refusals, the stages it explains, how it ends and goes on. No Spark starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import ConfigurationError
from engine.cli.shell import Terminated
from engine.runtime.config import SparkCluster, parse_where
from spark_bridge import SparkBridgeError, pipeline, session
from spark_bridge.pipeline import BatchExecution
from spark_bridge.pipeline.batch_driver import BatchDriver
from tests.cli.conftest import Weir
from tests.spark_bridge.pipeline.local_stages import LocalStages


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (None, None),
        ("spark", SparkCluster()),
        ("spark=local[4]", SparkCluster("local[4]")),
        ("spark=local[*,3]", SparkCluster("local[*,3]")),
        ("spark=spark://h:7", SparkCluster("spark://h:7")),
        ("spark=spark://h:7,i:8", SparkCluster("spark://h:7,i:8")),
        ("spark://h:7", SparkCluster("spark://h:7")),
        ("spark=yarn", SparkCluster("yarn")),
        ("spark=k8s://https://h:6443", SparkCluster("k8s://https://h:6443")),
        ("simulator", None),
    ],
)
def test_the_place_that_the_option_names(text: str | None, where: SparkCluster | None) -> None:
    """Without a master it is two cores of this machine; without the option the simulator."""
    assert parse_where(text) == where


@pytest.mark.parametrize("text", ["sprak", "", "spark=", "flink", "SPARK"])
def test_a_place_that_there_is_not(text: str) -> None:
    """The error shows both forms."""
    with pytest.raises(ConfigurationError, match="is no place to run a job\n  fix: spark, or spark=MASTER"):
        parse_where(text)


@pytest.mark.parametrize("master", ["foo", "local[x]", "spark://h", "spark://h:port", "spark://h:7,i", "yarn-client"])
def test_a_master_that_spark_does_not_know(weir: Weir, master: str, tmp_path: Path) -> None:
    """Spark would say so in a Java trace, half a minute later. Nothing is created."""
    answer = weir("run", "sums.py", "--on", f"spark={master}", "--storage", "state")
    assert answer.exit_code == 11
    assert answer.stderr == (
        f"error: {master!r} is no master that Spark knows\n"
        "  fix: write local[N], spark://HOST:PORT, yarn or k8s://URL after spark=\n"
    )
    assert not (tmp_path / "state").exists()


def test_java_is_missed_before_anything_is_created(
    weir: Weir, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same command works once Java is there."""
    monkeypatch.setattr(session, "_running", None)
    monkeypatch.setenv("JAVA_HOME", "/no/java")
    answer = weir("run", "sums.py", "--on", "spark", "--storage", "state")
    assert answer.exit_code == 20
    assert answer.stderr.startswith("error: JAVA_HOME is /no/java, but there is no such directory")
    assert not (tmp_path / "state").exists()


class Masters:
    """Runs batches in this process, and notes the master of each run. ``ends_with`` is raised in its second batch."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.ends_with: BaseException | None = None

    def execution(self, plan: Any, config: Any, *, master: str | None, **options: Any) -> BatchExecution:
        self.asked.append(master)

        def run_all(driver: BatchDriver) -> None:
            for batch in range(1_000):
                if driver.is_over:
                    return
                if batch == 1 and self.ends_with is not None:
                    raise self.ends_with
                driver.run_batch()

        return BatchExecution(plan, config, run_batch=LocalStages().run, run_all=run_all, **options)


@pytest.fixture
def masters(monkeypatch: pytest.MonkeyPatch) -> Masters:
    """What is asked of Spark comes here."""
    made = Masters()
    monkeypatch.setattr(pipeline, "spark_execution", made.execution)
    monkeypatch.setattr(pipeline, "check_installed", lambda: None)
    return made


RUN = ("run", "sums.py", "--storage", "state", "--checkpoint-interval", "20rec")


def rows(weir: Weir) -> list[str]:
    return sorted(line for lines in weir.rows("state/out").values() for line in lines)


def state_of_run(tmp_path: Path) -> str:
    return str(json.loads((tmp_path / "state" / "out" / "run.json").read_text())["run"]["state"])


def test_resume_goes_on_where_the_job_ran_last(weir: Weir, masters: Masters, tmp_path: Path) -> None:
    """With its master. The run that failed is no longer "running"."""
    masters.ends_with = SparkBridgeError("the Spark cluster is gone")
    answer = weir(*RUN, "--on", "spark=local[3]")
    assert answer.exit_code == 25
    assert "job sums on spark=local[3], mode aligned" in answer.stderr
    assert "error: the Spark cluster is gone" in answer.stderr
    assert answer.last_line.endswith(f"Next: fix the cause, then weir resume {tmp_path / 'state'}")
    assert state_of_run(tmp_path) == "failed"

    masters.ends_with = None
    answer = weir("resume", "state")
    assert answer.exit_code == 0, answer.stderr
    assert "job sums on spark=local[3], mode aligned" in answer.stderr
    assert "restored checkpoint 1" in answer.stderr
    assert masters.asked == ["local[3]", "local[3]"]
    assert len(rows(weir)) == 200


def test_resume_moves_a_job_and_remembers_that(weir: Weir, masters: Masters) -> None:
    """Into the simulator, and to another master."""
    masters.ends_with = SparkBridgeError("gone")
    weir(*RUN, "--on", "spark")
    weir("resume", "state", "--on", "spark=local[4]")
    weir("resume", "state")
    assert masters.asked == [None, "local[4]", "local[4]"]
    answer = weir("resume", "state", "--on", "simulator")
    assert answer.exit_code == 0, answer.stderr
    assert "job sums, mode aligned" in answer.stderr
    weir("resume", "state")
    assert len(masters.asked) == 3
    assert len(rows(weir)) == 200


def test_a_resumed_run_on_spark_has_no_faults_either(weir: Weir, masters: Masters) -> None:
    """The way out is the simulator."""
    masters.ends_with = SparkBridgeError("gone")
    weir(*RUN, "--on", "spark")
    answer = weir("resume", "state", "--kill", "sum[0]@1ms")
    assert answer.exit_code == 11
    assert "--kill works in the simulator only\n  fix: leave it out, or use --on simulator" in answer.stderr


@pytest.mark.parametrize(("ending", "code"), [(KeyboardInterrupt(), 130), (Terminated(), 143)], ids=["int", "term"])
def test_a_run_that_is_ended_says_how_to_go_on(
    weir: Weir, masters: Masters, ending: BaseException, code: int, tmp_path: Path
) -> None:
    """As a simulated one does."""
    masters.ends_with = ending
    answer = weir(*RUN, "--on", "spark")
    assert answer.exit_code == code
    assert f"Next: weir resume {tmp_path / 'state'}\n" in answer.stderr
    assert "Traceback" not in answer.stderr
    masters.ends_with = None
    assert weir("resume", "state").exit_code == 0
    assert len(rows(weir)) == 200


def test_checkpoints_need_a_directory(weir: Weir) -> None:
    """In memory no executor would find them."""
    answer = weir("run", "sums.py", "--on", "spark")
    assert answer.exit_code == 11
    assert "needs a directory for checkpoints that all executors see" in answer.stderr
    assert "add --storage DIR" in answer.stderr


def test_a_url_is_no_such_directory(weir: Weir) -> None:
    """Executors reach a directory under one path."""
    answer = weir("run", "sums.py", "--on", "spark", "--storage", "memory://state")
    assert answer.exit_code == 11
    assert "name a directory that all executors see" in answer.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--kill", "sum[0]@1ms"), ("--fault", "crash:sum[0]@before:ack.send#1"), ("--paranoid",), ("--ledger",),
        ("--savepoint-at", "1ms"), ("--stop-with-savepoint", "1ms"),
    ],
    ids=lambda options: options[0],
)  # fmt: skip
def test_what_only_a_simulation_can_do(weir: Weir, options: tuple[str, ...], tmp_path: Path) -> None:
    """Such an option is refused before anything is created, and not ignored."""
    answer = weir("run", "sums.py", "--on", "spark", "--storage", str(tmp_path / "state"), *options)
    assert answer.exit_code == 11
    assert f"{options[0]} works in the simulator only" in answer.stderr
    assert not (tmp_path / "state").exists()


def test_explain_prints_the_stages(weir: Weir) -> None:
    """With each exchange, and what the driver does after them."""
    answer = weir("run", "sums.py", "--on", "spark", "--explain")
    assert answer.exit_code == 0
    lines = answer.stdout.splitlines()
    assert lines[0] == "job sums on Spark: a batch goes through these stages, and ends with a checkpoint"
    assert "stage 0, on executors" in lines
    assert any(" by hash" in line for line in lines)
    assert lines[-1] == "after the last stage, on the driver: the checkpoint, then the commits of sinks"
