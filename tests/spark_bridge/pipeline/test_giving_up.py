"""Errors of Spark as users read them."""

from __future__ import annotations

import time

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from engine import UserFunctionError
from spark_bridge.errors import ExecutorError, SparkBridgeError
from spark_bridge.jvm import beside
from spark_bridge.pipeline.giving_up import told

VERSIONS = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 94, in main
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: \
3.9 than that in driver: 3.11, PySpark cannot run with different minor versions.
"""
MODULE = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
  File "cloudpickle.py", line 7, in loads
ModuleNotFoundError: No module named 'numpy_of_mine'
\tat org.apache.spark.api.python.BasePythonRunner
"""
PROGRAM = 'Job aborted: java.io.IOException: Cannot run program "/opt/python3.11": error=2, No such file or directory'
LOST = "Job aborted due to stage failure: Task 0 failed 4 times: ExecutorLostFailure (executor 1 exited)\n\tat java.x"
HEAP = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in \
stage 3.0 (TID 7) (10.0.0.2 executor 1): java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.util.Arrays.copyOf"""
LOST_HEAP = """Job aborted: Task 0 failed 4 times: Lost task 0.3 in stage 3.0 (TID 7) (h3 executor 12): \
ExecutorLostFailure (executor 12 exited caused by one of the running tasks) Reason: Command exited with code 52"""
WORKER = """Job aborted: Task 0 failed 4 times: Lost task 0.3 in stage 3.0 (TID 7) (h3 executor 2): \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python"""
OTHER = "Job aborted due to stage failure: something odd\n\tat org.apache.spark.x(Y.java:3)\n"


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (VERSIONS, ExecutorError, r"executors run Python 3.9, and the driver runs 3.11\n  fix: install Python 3.11"),
        (MODULE, ExecutorError, r"lacks a module of the job: No module named 'numpy_of_mine'\n  fix: install it there"),
        (PROGRAM, ExecutorError, r"has no program /opt/python3.11, .*\n  fix: .* PYSPARK_PYTHON$"),
        (LOST, SparkBridgeError, r"the Spark cluster is gone: ExecutorLostFailure\n.*then go on with weir resume$"),
        (HEAP, SparkBridgeError, r"^executor 1 on 10.0.0.2 ran out of memory in its JVM\n.*\n  fix: raise spark"),
        (LOST_HEAP, SparkBridgeError, r"^executor 12 on h3 ran out of memory in its JVM\n.*\n  fix: raise spark"),
        (WORKER, SparkBridgeError, r"^executor 2 on h3 lost a Python process, most likely because the memory"),
        (OTHER, SparkBridgeError, r"Spark has given up a batch: .*something odd'\n.*then go on with weir resume$"),
    ],
    ids=["python", "module", "program", "lost", "heap", "lost-heap", "worker", "other"],
)
def test_an_error_of_spark(text: str, kind: type[Exception], words: str) -> None:
    """Without Java frames, and with the way out."""
    with pytest.raises(kind, match=words) as caught:
        raise told(PySparkException(text))
    assert "\tat " not in str(caught.value)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("error", [Py4JNetworkError("x"), ConnectionRefusedError("x"), EOFError()], ids=repr)
def test_a_jvm_that_has_died(error: Exception) -> None:
    """Its last error is quoted."""
    printed = "26/11/24 INFO Main: fine\n26/11/24 ERROR Executor: java.lang.OutOfMemoryError: Java heap space\n\tat x"
    with pytest.raises(
        SparkBridgeError, match=r"the connection to its driver is lost\n  it printed: .*Java heap space"
    ):
        raise told(error, lambda: printed)


def test_an_error_of_the_job_stays_as_it_is() -> None:
    """It has its own text and exit code."""
    error = UserFunctionError("map", "function", 3, 1, ValueError("no"))
    assert told(error) is error


def test_work_beside_raises_its_error_and_is_waited_for_so_long() -> None:
    """And returns its result."""
    assert beside(lambda: 3) == 3
    with pytest.raises(KeyError):
        beside({}.popitem)
    with pytest.raises(TimeoutError):
        beside(lambda: time.sleep(3), 0.01)
