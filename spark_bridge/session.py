"""The one Spark session of a process: started at first use, quiet, small enough for a laptop, stopped on
request.

Spark allows one driver per process, and a driver's heap is fixed when its JVM starts. So this module starts
the JVM itself instead of leaving it to `SparkSession.builder`: it can then choose the heap, look for Java
first, keep the JVM's stderr out of the user's terminal (its tail is quoted in errors), notice a JVM that
died, and really end it.

Importing this module imports no PySpark and starts nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any

from spark_bridge.errors import PySparkMissingError, SparkBridgeError
from spark_bridge.java import JavaRuntime, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STOP_TIMEOUT_SECONDS = 30
_LOG_TAIL_BYTES = 4096


@dataclass(frozen=True)
class SessionSettings:
    """What can be chosen about the session, before it starts.

    Attributes: master: a Spark master URL. Two local cores by default, so that a run costs the same on every
        machine. driver_memory: heap of the driver JVM. Spark's default of 1 GiB dies on a batch of a million
        rows; 2 GiB has
            room to spare for it.
        shuffle_partitions: partitions after a shuffle. Spark's default of 200 is made for clusters; each one
            costs a task, and batches here are small.
        app_name: shown in Spark's own tools.
        extra: further Spark properties; they win over everything above.
    """

    master: str = "local[2]"
    driver_memory: str = "2g"
    shuffle_partitions: int = 2
    app_name: str = "weir"
    extra: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.shuffle_partitions < 1:
            raise SparkBridgeError(f"shuffle_partitions must be at least 1, not {self.shuffle_partitions}")

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are this one machine."""
        return self.master.startswith("local")

    def spark_properties(self) -> dict[str, str]:
        """All Spark properties that follow from these settings."""
        properties = {
            "spark.master": self.master,
            "spark.app.name": self.app_name,
            "spark.driver.memory": self.driver_memory,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            # No Derby files and no metastore in the user's directory.
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "weir-spark-warehouse"),
            **self.query_properties(),
        }
        if self.is_local:
            # Nothing outside this machine can reach the driver, and no host name needs to resolve.
            properties["spark.driver.host"] = "127.0.0.1"
            properties["spark.driver.bindAddress"] = "127.0.0.1"
        properties.update(self.extra)
        return properties

    def query_properties(self) -> dict[str, str]:
        """The properties that decide how a query runs; they can be set on a session that already exists."""
        return {
            "spark.sql.shuffle.partitions": str(self.shuffle_partitions),
            # A timestamp means the same on every machine.
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            # A batch is a handful of tasks: re-planning between stages costs more than it can save.
            "spark.sql.adaptive.enabled": "false",
        }


@dataclass
class _RunningSession:
    session: SparkSession
    settings: SessionSettings
    # The JVM we started, or None when the session was there before us (a notebook, spark-submit).
    jvm: subprocess.Popen[bytes] | None
    log: IO[bytes] | None

    def is_alive(self) -> bool:
        if self.jvm is not None and self.jvm.poll() is not None:
            return False
        context: Any = self.session.sparkContext
        # PySpark clears `_jsc` when a context is stopped behind our back.
        return context._jsc is not None


_running: _RunningSession | None = None


def get_session(settings: SessionSettings | None = None) -> SparkSession:
    """Returns this process's Spark session and starts it first when there is none (7 to 10 seconds).

    A session that was created elsewhere in this process (a notebook, `spark-submit`) is used, never stopped.
    A session whose JVM has died is replaced by a new one.

    Args:
        settings: wanted settings; None takes the running session as it is, or the defaults.

    Raises:
        PySparkMissingError: PySpark or PyArrow is not installed.
        JavaMissingError: no Java 17 or newer.
        SparkBridgeError: Spark does not start, or runs already with other settings.
    """
    global _running  # noqa: PLW0603 (Spark allows one driver per process; this is where ours is remembered)
    if _running is not None and not _running.is_alive():
        stop_session()
    if _running is None:
        require_pyspark()
        wanted = settings or SessionSettings()
        _running = _adopt(wanted) or _start(wanted, find_java())
    elif settings is not None and settings != _running.settings:
        raise SparkBridgeError(
            f"Spark already runs in this process with {_running.settings}, so it cannot run with {settings}: "
            "one process has one driver. Call stop_session() first, or ask for these settings before the first batch."
        )
    return _running.session


def session_is_running() -> bool:
    """Whether a session of this module exists and its JVM lives."""
    return _running is not None and _running.is_alive()


def stop_session() -> None:
    """Stops the session and the JVM this module started; does nothing when there is none.

    A later `get_session` starts a new one. DataFrames of the stopped session are dead.
    """
    global _running
    running, _running = _running, None
    if running is None:
        return
    if running.jvm is not None:
        _end_jvm(running)
    if running.log is not None:
        running.log.close()


def session_log_tail() -> str:
    """The last lines the running JVM wrote to its stdout and stderr; empty when nothing is known."""
    return "" if _running is None or _running.log is None else _tail_of(_running.log)


def require_pyspark() -> None:
    """Checks that PySpark and PyArrow can be imported, without importing them.

    Raises:
        PySparkMissingError: with the extra to install.
    """
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise PySparkMissingError(
            f"{' and '.join(missing)} not installed: Spark is an extra. Install it with: "
            "pip install 'weirstream[spark]'"
        )


def _adopt(settings: SessionSettings) -> _RunningSession | None:
    """Takes over a session that exists already, with query settings of our own that do not disturb its owner."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None:
        return None
    session = active.newSession()
    for name, value in settings.query_properties().items():
        session.conf.set(name, value)
    return _RunningSession(session, settings, jvm=None, log=None)


def _start(settings: SessionSettings, java: JavaRuntime) -> _RunningSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    properties = settings.spark_properties()
    configuration = SparkConf(loadDefaults=False).setAll(list(properties.items()))
    # A file without a name: it cannot be left behind, however this process ends.
    log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the JVM)
    gateway: Any = None
    try:
        with _launch_environment(settings, java):
            gateway = launch_gateway(configuration, {"stdout": log, "stderr": log})
            context = SparkContext(conf=configuration, gateway=gateway)
        context.setLogLevel("ERROR")
        session = SparkSession(context)
    except (PySparkException, OSError, ValueError, _py4j_error()) as error:
        tail = _tail_of(log)
        _forget_gateway(gateway)
        log.close()
        raise SparkBridgeError(
            f"Spark did not start ({type(error).__name__}) with {settings} on {java.executable} "
            f"(Java {java.major}). It said:\n{tail}"
        ) from None
    # Without this the JVM outlives the interpreter by a moment and its directory is still there when we are
    # gone.
    atexit.register(stop_session)
    return _RunningSession(session, settings, jvm=gateway.proc, log=log)


@contextlib.contextmanager
def _launch_environment(settings: SessionSettings, java: JavaRuntime) -> Iterator[None]:
    """Environment variables that must be set while the JVM and its context start; put back afterwards.

    PySpark reads these from the environment only.
    """
    wanted: dict[str, str | None] = {
        # Without a home, Spark's script takes `java` from the PATH; a JAVA_HOME that is too old must not be
        # seen.
        "JAVA_HOME": java.home,
        # Python functions inside Spark run on this interpreter, not on whatever `python3` is.
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
    if settings.is_local:
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in wanted}
    _set_environment(wanted)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _end_jvm(running: _RunningSession) -> None:
    """Stops context and JVM; PySpark itself only stops the context and keeps a JVM with its old heap around."""
    from pyspark import SparkContext

    assert running.jvm is not None
    gateway: Any = SparkContext._gateway
    if running.jvm.poll() is None:
        # A JVM that dies while it is stopped is stopped: that is all that was wanted.
        with contextlib.suppress(_py4j_error(), OSError):
            running.session.stop()
    else:
        _forget_dead_context()
    _forget_gateway(gateway)


def _forget_dead_context() -> None:
    """Makes PySpark forget a context whose JVM is gone; asking it to stop would wait for an answer in vain."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None
    SparkContext._active_spark_context = None
    session_class: Any = SparkSession
    session_class._instantiatedSession = None


def _forget_gateway(gateway: Any) -> None:
    """Ends the JVM behind a gateway and makes PySpark start a new one next time."""
    from pyspark import SparkContext

    if gateway is not None:
        with contextlib.suppress(_py4j_error(), OSError):
            gateway.shutdown()
        _wait_for_end(gateway.proc)
    context_class: Any = SparkContext
    context_class._gateway = None
    context_class._jvm = None


def _wait_for_end(jvm: subprocess.Popen[bytes] | None) -> None:
    if jvm is None:
        return
    if jvm.stdin is not None:
        # The JVM ends when its stdin does; that is also what ends it when this process is killed.
        with contextlib.suppress(OSError):
            jvm.stdin.close()
    try:
        jvm.wait(_STOP_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def _tail_of(log: IO[bytes]) -> str:
    """The end of the JVM's output. Read at an offset of our own: the JVM shares the file's write position."""
    size_bytes = os.fstat(log.fileno()).st_size
    start = max(0, size_bytes - _LOG_TAIL_BYTES)
    return os.pread(log.fileno(), _LOG_TAIL_BYTES, start).decode("utf-8", errors="replace").strip()


def _py4j_error() -> type[Exception]:
    """Py4J's base error: what a call into a JVM that is gone raises."""
    from py4j.protocol import Py4JError

    error: type[Exception] = Py4JError
    return error
