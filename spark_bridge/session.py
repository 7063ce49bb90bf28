"""The one Spark session of a process: started at first use, small, quiet, ended on request.

Spark allows one driver per process, so there is one session, and this module holds it. Importing this module
imports no PySpark and starts no JVM.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from spark_bridge.errors import PySparkMissingError, SparkBridgeError
from spark_bridge.java import find_java
from spark_bridge.jvm import SparkJvm, is_spark_error, joined_context
from spark_bridge.python_workers import begin_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT_SECONDS = 10

BRIEF_LIFE = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Java's quick compiler and its simplest collector: the best would take half of the time of a short session, without a
benefit. With that compiler alone Java would keep 48 MB for compiled code, which a few hundred queries fill; a driver
that then finds no room for an adapter dies of a VirtualMachineError. 240 MB are Java's own default otherwise."""


@dataclass(frozen=True)
class SessionSettings:
    """The options of the session, to be chosen before it starts.

    Attributes:
        master: a Spark master URL. Two local cores by default, so that a run costs the same on every machine.
        driver_memory: heap of the driver JVM. Spark's default of 1 GiB dies on a batch of a million rows.
        shuffle_partitions: partitions after a shuffle. Spark's default of 200 is made for clusters; each one
            costs a task, and batches here are small.
        app_name: shown in Spark's own tools.
        short_lived: for a session of a minute or two: Java uses its quick compiler only, and collects garbage in one
            thread. Start and first batches take about half the CPU time; long loops over many rows take more. Settings
            that differ in nothing else are the same.
        imports: modules that Python workers import while the session is still starting, so that the first tasks do
            not wait for them. Nor do these make settings differ.
        extra: further Spark properties; they override all of the above.
    """

    master: str = "local[2]"
    driver_memory: str = "2g"
    shuffle_partitions: int = 2
    app_name: str = "weir"
    short_lived: bool = field(default=False, compare=False)
    imports: tuple[str, ...] = field(default=(), compare=False)
    extra: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.shuffle_partitions < 1:
            raise SparkBridgeError(f"shuffle_partitions must be at least 1, not {self.shuffle_partitions}")

    @property
    def is_local(self) -> bool:
        """Whether driver and executors all run on this machine."""
        return self.master.startswith(("local", "spark://127.", "spark://localhost:"))

    def spark_properties(self) -> dict[str, str]:
        """All Spark properties that follow from these settings."""
        properties = {
            "spark.master": self.master,
            "spark.app.name": self.app_name,
            "spark.driver.memory": self.driver_memory,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            # Keep Derby files and a metastore out of the user's directory.
            "spark.sql.catalogImplementation": "in-memory",
            **self.query_properties(),
        }
        if self.is_local:
            # Only this machine can reach the driver, and no host name needs to resolve.
            properties["spark.driver.host"] = "127.0.0.1"
            properties["spark.driver.bindAddress"] = "127.0.0.1"
        if self.short_lived:
            properties["spark.driver.extraJavaOptions"] = BRIEF_LIFE
        properties.update(self.extra)
        return properties

    def query_properties(self) -> dict[str, str]:
        """The properties that decide how a query runs; they can be set on an existing session."""
        return {
            "spark.sql.shuffle.partitions": str(self.shuffle_partitions),
            # A timestamp means the same on every machine.
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            # A batch is a handful of tasks: re-planning between stages costs more than it can save.
            "spark.sql.adaptive.enabled": "false",
        }


@dataclass(frozen=True)
class SessionAddress:
    """Where processes of this machine find a session: the port of its JVM, and a secret that they must know."""

    port: int
    secret: str = field(repr=False)


@dataclass
class _RunningSession:
    session: SparkSession
    settings: SessionSettings
    # None when the session is another's (a notebook, spark-submit, another process): then this module must not end it.
    jvm: SparkJvm | None

    def is_alive(self) -> bool:
        if self.jvm is not None and self.jvm.has_ended():
            return False
        context: Any = self.session.sparkContext
        # PySpark clears `_jsc` when other code stops a context.
        return context._jsc is not None


_running: _RunningSession | None = None
_starting: Future[SparkSession] | None = None


def start_session(settings: SessionSettings | None = None) -> None:
    """Begins to start this process's session in the background, if there is none; `get_session` then waits for it.

    Its errors are those of `get_session`, and raised there.
    """
    if _starting is None and not session_is_running():
        _begin(lambda: _session(settings))


def session_address() -> SessionAddress:
    """Where other processes of this machine find the session of this one, which is started if there is none.

    Raises:
        SparkBridgeError: the session was created elsewhere. Errors of `get_session`.
    """
    get_session()
    if _running is None or _running.jvm is None:
        raise SparkBridgeError("only a session that this module started can be used by another process")
    return SessionAddress(*_running.jvm.address)


def use_session_at(address: Callable[[], SessionAddress]) -> None:
    """Begins, in the background, to use the session of another process; `get_session` then waits for it.

    A process forked from one with a session may do so, and then no longer has that of its parent. One that has started
    a session itself stops it first.

    Args:
        address: waits for the address that `session_address` gives in the other process.
    """
    _begin(lambda: _join(address()))


def _begin(start: Callable[[], SparkSession]) -> None:
    global _starting  # noqa: PLW0603 (one driver per process)
    atexit.register(stop_session)
    starter = ThreadPoolExecutor(1, thread_name_prefix="weir-spark-start")
    _starting = starter.submit(start)
    starter.shutdown(wait=False)


def _join(address: SessionAddress) -> SparkSession:
    global _running  # noqa: PLW0603 (one driver per process)
    from pyspark.sql import SparkSession

    _silence_pyspark_loggers()
    try:
        session = SparkSession(joined_context(address.port, address.secret))
    except Exception as error:
        if not is_spark_error(error) and not isinstance(error, OSError):
            raise
        raise SparkBridgeError(
            f"no session of Spark answers at port {address.port}: {type(error).__name__}\n"
            "  fix: keep the process that started it alive for as long as others use its session"
        ) from None
    _running = _RunningSession(session, SessionSettings(), jvm=None)
    return session


def get_session(settings: SessionSettings | None = None) -> SparkSession:
    """Returns this process's Spark session and starts it first when there is none (about 6 to 10 seconds).

    A session that was created elsewhere in this process (a notebook, `spark-submit`) is used and never
    stopped. A session whose JVM has died is replaced by a new one.

    Args:
        settings: wanted settings; None accepts the running session as it is, or takes the defaults.

    Raises:
        PySparkMissingError: PySpark or PyArrow is not installed.
        JavaMissingError: no Java 17 or newer.
        SparkBridgeError: Spark does not start, or is already running with other settings.
    """
    global _starting  # noqa: PLW0603 (one driver per process)
    starting = _starting
    if starting is not None:
        # Cleared after the wait: another thread that comes meanwhile waits, too, and does not start a second one.
        try:
            starting.result()
        finally:
            _starting = None
    return _session(settings)


def _session(settings: SessionSettings | None) -> SparkSession:
    global _running  # noqa: PLW0603 (one driver per process; this is where it is remembered)
    if _running is not None and not _running.is_alive():
        _stop()
    if _running is None:
        require_pyspark()
        wanted = settings or SessionSettings()
        _running = _adopt(wanted) or _start(wanted)
    elif settings is not None and settings != _running.settings:
        raise SparkBridgeError(
            f"Spark already runs in this process with {_running.settings}, so it cannot run with {settings}: "
            "one process has one driver. Call stop_session() first, or ask for these settings at the start."
        )
    return _running.session


def session_is_running() -> bool:
    """Whether a session of this module exists and its JVM is alive."""
    return _running is not None and _running.is_alive()


def session_has_died(wait_seconds: float = 0.0) -> bool:
    """Whether the JVM of the session has ended by itself; waits that long for one that is about to end."""
    return _running is not None and _running.jvm is not None and _running.jvm.has_ended(wait_seconds)


def session_log_tail() -> str:
    """The last lines that the JVM printed; empty when this module has started none."""
    return "" if _running is None or _running.jvm is None else _running.jvm.log_tail()


def stop_session() -> None:
    """Stops the session and the JVM that this module started; does nothing when there is none.

    A later `get_session` starts a new one. DataFrames of the stopped session are invalid.
    """
    global _starting
    starting, _starting = _starting, None
    if starting is not None:
        starting.exception()
    _stop()


def _stop() -> None:
    global _running
    running, _running = _running, None
    if running is not None and running.jvm is not None:
        running.jvm.end()


def require_pyspark() -> None:
    """Checks that PySpark and PyArrow can be imported, and that PySpark is new enough, without importing them.

    Raises:
        PySparkMissingError: with the extra to install.
    """
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise PySparkMissingError(
            f"{' and '.join(missing)} not installed: Spark is an extra. Install it with: "
            "pip install 'weirstream[spark]'"
        )
    installed = _pyspark_version()
    # Stages exchange rows with `repartitionById`, which is new in 4.1.
    if tuple(map(int, re.findall(r"\d+", installed)[:2])) < (4, 1):
        raise PySparkMissingError(
            f"PySpark {installed} is installed, and Weir needs 4.1 or newer. Install it with: "
            "pip install --upgrade 'weirstream[spark]'"
        )


def check_installed() -> None:
    """Checks, without starting anything, that a session can start on this machine: PySpark, PyArrow and Java.

    Raises:
        PySparkMissingError, JavaMissingError: with what to install.
    """
    require_pyspark()
    if not session_is_running():
        find_java()


def _pyspark_version() -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        # A Spark distribution brings PySpark on the path, without an installation.
        from pyspark.version import __version__

        return __version__


def _adopt(settings: SessionSettings) -> _RunningSession | None:
    """Uses an existing session, with query settings that do not disturb its owner."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None:
        return None
    session = active.newSession()
    for name, value in settings.query_properties().items():
        session.conf.set(name, value)
    return _RunningSession(session, settings, jvm=None)


def _start(settings: SessionSettings) -> _RunningSession:
    # Before PySpark is imported: its own message for a missing Java comes from a shell script.
    java = find_java()
    from pyspark.sql import SparkSession

    check_answers(settings.master)
    jvm = SparkJvm(settings.spark_properties(), java, local_only=settings.is_local)
    _silence_pyspark_loggers()
    atexit.register(stop_session)
    if settings.imports:
        begin_workers(jvm.context, settings.imports)
    try:
        session = SparkSession(jvm.context)
    except Exception as error:
        # A context without a master ends by itself, a minute after its start.
        said = _last_errors(jvm.log_tail())
        jvm.end()
        if not is_spark_error(error):
            raise
        raise SparkBridgeError(
            f"Spark did not start on {settings.master}: {said or type(error).__name__}\n"
            "  fix: check the URL, and that the master runs and takes applications"
        ) from None
    return _RunningSession(session, settings, jvm)


def check_answers(master: str) -> None:
    """Raises :class:`SparkBridgeError` when no host of a `spark://` URL accepts connections. Spark itself would give up
    after a minute, in a Java trace."""
    if not master.startswith("spark://"):
        return
    problems = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        except OSError as error:
            problems.append(f"{place}: {error.strerror or error}")
        else:
            return
    raise SparkBridgeError(
        f"no Spark master answers at {master} ({'; '.join(problems)})\n"
        "  fix: check the host and the port, and start the master if it does not run"
    )


def _last_errors(log: str) -> str:
    lines = [line for line in log.splitlines() if " ERROR " in line]
    return "; ".join(line.partition(" ERROR ")[2].partition("\n")[0] for line in lines[-2:])


def _silence_pyspark_loggers() -> None:
    """Keeps PySpark and Py4J from printing failures in pages of JSON and traces; they raise the errors, too."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # Py4J reports to its own logger, and a lost connection to the root logger.
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname
