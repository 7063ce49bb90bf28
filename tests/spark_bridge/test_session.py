"""One session per process: its settings, its silence, and which code may stop it."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from spark_bridge import session
from spark_bridge.errors import SparkBridgeError
from spark_bridge.session import SessionSettings, get_session, session_is_running, stop_session

pytestmark = pytest.mark.spark


def test_start_prints_nothing(start_of_session: tuple[Any, str]) -> None:
    """Starting Spark and running a query leaves the terminal alone; Spark alone prints half a dozen warnings."""
    assert start_of_session[1] == ""


def test_failing_queries_print_nothing(spark: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """An error of Spark is raised, not printed: neither by the JVM nor by PySpark's own loggers."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException):
        spark.range(1).select("nothing")
    with pytest.raises(PySparkException):
        spark.sql("select raise_error('no')").collect()

    assert capfd.readouterr() == ("", "")


def test_there_is_one_session(spark: Any) -> None:
    """Every call gives the same session, with or without the settings it runs with."""
    assert get_session() is spark
    assert get_session(SessionSettings()) is spark
    assert session_is_running()


def test_other_settings_are_refused_while_it_runs(spark: Any) -> None:
    """A driver's heap is fixed at its start, so asking for another one is an error that says what to do."""
    with pytest.raises(SparkBridgeError, match=r"driver_memory='9g'.*stop_session\(\) first"):
        get_session(SessionSettings(driver_memory="9g"))


def test_settings_reach_the_driver(spark: Any) -> None:
    """Two cores, a heap of about 2 GiB, UTC, few partitions, no user interface, loopback only."""
    context = spark.sparkContext
    heap_bytes = context._jvm.java.lang.Runtime.getRuntime().maxMemory()

    assert context.defaultParallelism == 2
    assert 1.7 * 2**30 < heap_bytes <= 2 * 2**30
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert context.uiWebUrl is None
    assert context.getConf().get("spark.driver.host") == "127.0.0.1"
    assert context.getConf().get("spark.driver.bindAddress") == "127.0.0.1"


def test_environment_is_put_back(spark: Any) -> None:
    """The variables that PySpark needs at the start are removed again, so that other programs do not see them."""
    assert "SPARK_LOCAL_IP" not in os.environ
    assert os.environ.get("PYSPARK_PYTHON") in (None, sys.executable)


def test_python_functions_run_on_this_interpreter(spark: Any) -> None:
    """A Python function inside Spark runs on the interpreter of the driver, not on any `python3` of the PATH."""
    executables = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()

    assert executables == [sys.executable]


def test_foreign_session_is_used_and_never_stopped(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session created by other code keeps its settings and keeps running; ours beside it has our settings."""
    monkeypatch.setattr(session, "_running", None)

    ours = get_session(SessionSettings(shuffle_partitions=3))
    ours.range(1).count()
    stop_session()

    assert ours is not spark
    assert ours.sparkContext is spark.sparkContext
    assert ours.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.range(3).count() == 3


def test_stop_without_a_session_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping is safe when no session runs."""
    monkeypatch.setattr(session, "_running", None)

    stop_session()

    assert not session_is_running()


@pytest.mark.parametrize("partitions", [0, -1])
def test_impossible_settings_are_refused(partitions: int) -> None:
    """A shuffle into no partition is refused before Spark starts."""
    with pytest.raises(SparkBridgeError, match="at least 1"):
        SessionSettings(shuffle_partitions=partitions)


def test_extra_properties_win_and_clusters_are_not_bound_to_loopback() -> None:
    """The user's settings win; the driver of a cluster must be reachable by its executors."""
    local = SessionSettings(extra={"spark.driver.memory": "3g"}).spark_properties()
    cluster = SessionSettings(master="spark://master:7077").spark_properties()

    assert local["spark.driver.memory"] == "3g"
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in cluster
    assert "spark.driver.host" not in cluster
