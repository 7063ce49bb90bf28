"""Spark has given up: its errors as a user reads them, without Java frames. Nothing of the batch is committed then."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from engine.elements.errors import shorten
from spark_bridge.errors import ExecutorError, SparkBridgeError
from spark_bridge.jvm import is_connection_error, is_spark_error


class Work(NamedTuple):
    """What Spark has given up, what was sent to executors, what holds nevertheless, and what to do once the cause is
    mended. ``smaller``: how it takes less memory."""

    name: str
    sent: str
    holds: str
    next_step: str
    smaller: str = ""


BATCH = Work(
    "a batch", "the job", "nothing of the batch is committed", "go on with weir resume",
    ", or let batches be smaller (--checkpoint-interval 10000rec)",
)  # fmt: skip
SEARCH = Work("a search", "the job", "runs that were told are right", "search again: the same seed makes the same runs")
SWEEP = Work(
    "a sweep", "the study", "rows that were written are right", "sweep again: cases with a row in out= do not run again"
)
_MODULE = re.compile(r"ModuleNotFoundError: (No module named '[^']+')")
_PYTHON = re.compile(r"Python in worker has different version: (\S+) than that in driver: (\S+?),")
_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_EXECUTOR = re.compile(r"\((\S+) executor (\w+)\)")
_HEAP = re.compile(r"java\.lang\.OutOfMemoryError(: [^\n]*)?|[Cc]ommand exited with code 52\b|exit code 52\b")
_WORKER = re.compile(r"Python worker exited unexpectedly|\bMemoryError\b|[Cc]ommand exited with code 137\b")
_SET = "in spark-defaults.conf of SPARK_CONF_DIR"
_GONE = ("SparkContext was shut down", "Cannot call methods on a stopped SparkContext", "All masters are unresponsive",
         "Master removed our application", "ExecutorLostFailure", "Job cancelled because SparkContext")  # fmt: skip


def told(error: BaseException, said: Callable[[], str] = str, work: Work = BATCH) -> BaseException:
    """An error of the job as it is; one of Spark as ours. ``said``: the last lines that the JVM has printed."""
    if not is_spark_error(error):
        if isinstance(error, ConnectionError | EOFError):
            return _gone("the connection to its driver is lost", said(), work)
        return error
    text = str(error)
    unfit = _unfit(text)
    if unfit is not None:
        return unfit
    if is_connection_error(error):
        return _gone("the connection to its driver is lost", said(), work)
    if _HEAP.search(text) or _WORKER.search(text):
        return _out_of_memory(text, work)
    cause = next((one for one in _GONE if one in text), None)
    if cause is not None:
        return _gone(cause, text, work)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if "Error: " in line and not line.startswith(("at ", "File "))]
    shown = shorten((causes or lines or [type(error).__name__])[-1 if causes else 0], 400)
    return SparkBridgeError(
        f"Spark has given up {work.name}: {shown}\n  {work.holds}; mend the cause, then {work.next_step}"
    )


def _unfit(text: str) -> ExecutorError | None:
    """The error for an executor that cannot run functions of the job."""
    if found := _PYTHON.search(text):
        theirs, mine = found.groups()
        return ExecutorError(
            f"executors run Python {theirs}, and the driver runs {mine}\n"
            f"  fix: install Python {mine} there, and name it in PYSPARK_PYTHON"
        )
    if found := _PROGRAM.search(text):
        return ExecutorError(
            f"an executor has no program {found[1]}, which runs the functions of the job\n"
            "  fix: install Python there under this path, or name another one in PYSPARK_PYTHON"
        )
    if found := _MODULE.search(text):
        return ExecutorError(
            f"an executor lacks a module of the job: {found[1]}\n"
            "  fix: install it there, or keep it beside the job file: then it travels with the job"
        )
    return None


def _out_of_memory(text: str, work: Work) -> SparkBridgeError:
    """Code 52 is Spark's for a full heap, 137 that of a process that the system has killed."""
    found = _EXECUTOR.search(text)
    where = f"executor {found[2]} on {found[1]}" if found else "an executor"
    if _HEAP.search(text):
        what, how = "ran out of memory in its JVM", f"raise spark.executor.memory {_SET}"
    else:
        what = "lost a Python process, most likely because the memory of its machine was full"
        how = f"give its machine more memory, or lower spark.executor.memory or spark.executor.cores {_SET}"
    return SparkBridgeError(f"{where} {what}\n  {work.holds}\n  fix: {how}{work.smaller}, then {work.next_step}")


def _gone(what: str, printed: str, work: Work) -> SparkBridgeError:
    lines = [line.strip() for line in printed.splitlines() if " ERROR " in line or "Reason: " in line]
    last = f"\n  it printed: {shorten(lines[-1], 300)}" if lines else ""
    return SparkBridgeError(
        f"the Spark cluster is gone: {what}{last}\n  {work.holds}; see that the cluster runs, then {work.next_step}"
    )
