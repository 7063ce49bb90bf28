"""The Java process of a session: how it is started, watched and ended.

PySpark can start a JVM by itself. But then its heap cannot be chosen after the first session, its warnings
go to the user's terminal, and it cannot be ended. So this module starts it, with the same launcher that PySpark
uses.

The process leaves no files, whichever process dies first: all its files are in one directory. When it ends by
itself (its stdin closes, because this process is done or was killed) its own shutdown empties and removes
that directory; when it is killed, `SparkJvm.end` removes it.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, TypeVar

from spark_bridge.errors import SparkBridgeError
from spark_bridge.java import JavaRuntime

T = TypeVar("T")

_STOP_TIMEOUT_SECONDS = 30
_LOG_TAIL_BYTES = 4096


class SparkJvm:
    """A running JVM with a `SparkContext` in it.

    Raises (from the constructor):
        SparkBridgeError: it did not start; the message quotes what it printed.
    """

    def __init__(self, properties: Mapping[str, str], java: JavaRuntime, *, local_only: bool) -> None:
        self._directory = tempfile.mkdtemp(prefix="weir-spark-")
        # A file without a name: it is gone however this process ends.
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the JVM)
        self._gateway: Any = None
        self._context: Any = None
        try:
            with _launch_environment(java, local_only=local_only):
                self._launch(dict(properties))
        except Exception as error:
            said = self.log_tail()
            self.end()
            if not isinstance(error, (OSError, ValueError)) and not is_spark_error(error):
                raise
            raise SparkBridgeError(
                f"Spark did not start on {java.executable} (Java {java.major}): {type(error).__name__} with "
                f"{dict(properties)}. It printed:\n{said}"
            ) from None

    def _launch(self, properties: dict[str, str]) -> None:
        from pyspark import SparkConf, SparkContext, java_gateway

        properties.setdefault("spark.local.dir", self._directory)
        properties.setdefault("spark.sql.warehouse.dir", os.path.join(self._directory, "warehouse"))
        options = properties.get("spark.driver.extraJavaOptions", "")
        properties["spark.driver.extraJavaOptions"] = f"-Djava.io.tmpdir={self._directory} {options}".strip()
        configuration = SparkConf(loadDefaults=False).setAll(list(properties.items()))
        launch_gateway: Any = java_gateway.launch_gateway
        self._gateway = launch_gateway(configuration, {"stdout": self._log, "stderr": self._log})
        # Registered first, so deleted last, when it is empty.
        self._gateway.jvm.java.io.File(self._directory).deleteOnExit()
        with _interrupts_as_before():
            self._context = SparkContext(conf=configuration, gateway=self._gateway)
        # It prints a traceback when the process dies.
        self._context._accumulatorServer.handle_error = lambda *_: None

    @property
    def context(self) -> Any:
        return self._context

    @property
    def address(self) -> tuple[int, str]:
        """Port and secret, for :func:`joined_context`."""
        parameters = self._gateway.gateway_parameters
        return parameters.port, parameters.auth_token

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process, for waiting, and for tests that kill it."""
        process: subprocess.Popen[bytes] = self._gateway.proc
        return process

    def has_ended(self, wait_seconds: float = 0.0) -> bool:
        """Whether the process has ended; waits that long for one that is about to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(wait_seconds)
        return self.process.poll() is not None

    def log_tail(self) -> str:
        # Read at a separate offset: the process writes at the file's shared position.
        size_bytes = os.fstat(self._log.fileno()).st_size
        start = max(0, size_bytes - _LOG_TAIL_BYTES)
        return os.pread(self._log.fileno(), _LOG_TAIL_BYTES, start).decode("utf-8", errors="replace").strip()

    def end(self) -> None:
        """Stops context and process, and makes PySpark start a new one next time."""
        if self._gateway is not None:
            if self._context is not None:
                self._stop_context()
            self._stop_process()
        _forget_gateway()
        self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _stop_context(self) -> None:
        if self.has_ended():
            _forget_dead_context(self._context)
            return
        # A process that dies while it is being stopped is stopped, as intended.
        with _ignoring_lost_connection():
            self._context.stop()

    def _stop_process(self) -> None:
        with _ignoring_lost_connection():
            self._gateway.shutdown()
        if self.process.stdin is not None:
            # The JVM ends when its stdin closes; so it also ends when this process is killed.
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        if not self.has_ended(_STOP_TIMEOUT_SECONDS):
            self.process.kill()
            self.process.wait()


def joined_context(port: int, secret: str) -> Any:
    """A `SparkContext` of this process, which is one in the JVM of another process of this machine. The process that
    started the JVM ends it.

    Raises errors of PySpark, Py4J and the operating system when that JVM does not answer.
    """
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.sql import SparkSession

    # A forked process has what its parent had, and must not use its connections.
    _forget_gateway()
    context_class: Any = SparkContext
    context_class._active_spark_context = None
    session_class: Any = SparkSession
    session_class._instantiatedSession = None
    address = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    with _environment(address):
        launch_gateway: Any = java_gateway.launch_gateway
        gateway = launch_gateway()
    java = gateway.jvm.org.apache.spark
    java_context = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
    configuration = SparkConf(_jvm=gateway.jvm, _jconf=java_context.getConf())
    with _interrupts_as_before():
        return SparkContext(gateway=gateway, jsc=java_context, conf=configuration)


def beside(work: Callable[[], T], most_seconds: float = math.inf) -> T:
    """Do work in the JVM in a thread of its own, and wait for it: a signal ends the waiting, and not a call in the
    middle. Raises what the work raises, and :class:`TimeoutError`."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="weir-spark", daemon=True)
    thread.start()
    end = time.monotonic() + most_seconds
    while thread.is_alive():
        if time.monotonic() > end:
            raise TimeoutError
        # Short, because some systems deliver a signal only after the waiting.
        thread.join(0.5)
    if failed:
        raise failed[0]
    return done[0]


def is_spark_error(error: BaseException) -> bool:
    """Whether an exception comes from PySpark or from its connection to the JVM."""
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")


def is_connection_error(error: BaseException) -> bool:
    """Whether the connection to the JVM is lost, as opposed to an error that Spark reported over it."""
    link: BaseException | None = error
    # PySpark wraps a lost connection in an error of its current work ("cannot parse datatype").
    while link is not None:
        if isinstance(link, (ConnectionError, EOFError)):
            return True
        if type(link).__module__.startswith("py4j") and not hasattr(link, "java_exception"):
            return True
        link = link.__cause__ or link.__context__
    return False


@contextlib.contextmanager
def _interrupts_as_before() -> Iterator[None]:
    """Ctrl-C stays with this program. PySpark's handler would call the JVM in the middle of another call, which fails
    in pages of text."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _ignoring_lost_connection() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not is_connection_error(error):
            raise


@contextlib.contextmanager
def _launch_environment(java: JavaRuntime, *, local_only: bool) -> Iterator[None]:
    """Environment variables that must be set while JVM and context start, and are restored afterwards.

    PySpark reads these from the environment only.
    """
    wanted: dict[str, str | None] = {
        # Without a home, Spark's script takes `java` from the PATH: a JAVA_HOME that is too old must be
        # hidden.
        "JAVA_HOME": java.home,
        # Python functions inside Spark run on this interpreter, not on any other `python3`.
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
    if local_only:
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    with _environment(wanted):
        yield


@contextlib.contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    _set_environment(variables)
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


def _forget_dead_context(context: Any) -> None:
    """Makes PySpark forget a context whose JVM is gone; stopping it would wait in vain."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context._jsc = None
    context_class: Any = SparkContext
    context_class._active_spark_context = None
    session_class: Any = SparkSession
    session_class._instantiatedSession = None


def _forget_gateway() -> None:
    from pyspark import SparkContext

    context_class: Any = SparkContext
    context_class._gateway = None
    context_class._jvm = None
