"""A standalone Spark cluster on this machine, from PySpark's own package: a master and workers, all on loopback.

For trying what a cluster does that ``local[2]`` does not: executors in processes of their own, which come and go. As a
program, ``python -m spark_bridge.cluster``, it prints the URL of the master and runs until Ctrl-C.

All files of the cluster lie in one directory, which goes with it. Executors are in the process group of their worker,
so they end with it, too. A shell waits for the end of the program that owns the cluster: when that is killed, the shell
ends the cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from types import FrameType, TracebackType
from typing import IO

from engine.elements.errors import WeirError
from spark_bridge.errors import ClusterError
from spark_bridge.java import JavaRuntime, find_java
from spark_bridge.session import require_pyspark

HOST = "127.0.0.1"
_DEPLOY = "org.apache.spark.deploy"
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
_LOOK_EVERY_S = 0.05
_END_SECONDS = 10
_WATCH = 'while read -r told; do [ "$told" = over ] && exit; all="$all -$told"; done; kill -9 $all; rm -rf "$0"'
"""Gets the process groups on its standard input, which closes when the program dies."""


class ClusterProcess:
    """The master or a worker. ``log``: what it prints."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: str) -> None:
        self.name, self.log = name, log
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the program that owns the cluster; and a group ends as one.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def printed(self) -> str:
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def signal(self, number: int) -> None:
        """Send a signal to the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def end(self) -> None:
        """End it, with all that it has started."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_SECONDS)
        # The group also when its first process has ended: executors may be left.
        self.signal(signal.SIGKILL)
        self.process.wait()


class StandaloneCluster:
    """A running cluster. ``cores`` and ``memory`` are those of one worker; without a ``port`` the master takes a free
    one. ``seconds``: how long a process may take to be ready.

    Raises (from the constructor):
        PySparkMissingError, JavaMissingError: with what to install.
        ClusterError: the port is taken, or a process is not ready in time; nothing is left of the others.
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        cores: int = 1,
        memory: str = "1g",
        port: int | None = None,
        seconds: float = 120.0,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """``options``: Spark properties of the master and the workers."""
        require_pyspark()
        java = find_java()
        if port is not None:
            _check_free(port)
        self._cores, self._memory, self._seconds = cores, memory, seconds
        self._directory = tempfile.mkdtemp(prefix="weir-cluster-")
        self._environment = _environment(java, self._directory, options or {})
        self._started = 0
        self.workers: list[ClusterProcess] = []
        self.url = ""
        self._master: ClusterProcess | None = None
        self._watch: subprocess.Popen[str] | None = None
        try:
            self._watch = subprocess.Popen(
                ["sh", "-c", _WATCH, self._directory], stdin=subprocess.PIPE, text=True, start_new_session=True
            )
            self._master = self._start("master", f"{_DEPLOY}.master.Master", "--port", str(port or 0))
            self.url = self._wait(self._master, _url_in)
            for _ in range(workers):
                self.workers.append(self._start_worker())
            for worker in self.workers:
                self._wait_for_worker(worker)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> StandaloneCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add_worker(self) -> ClusterProcess:
        """One more worker, once it has registered."""
        worker = self._start_worker()
        self.workers.append(worker)
        self._wait_for_worker(worker)
        return worker

    def check(self) -> None:
        """Raises :class:`ClusterError` when a process of the cluster has ended."""
        for one in self._processes():
            if one.process.poll() is not None:
                raise ClusterError(f"{one.name} has ended (exit code {one.process.returncode}). {_last_words(one)}")

    def close(self) -> None:
        """End all processes, and delete their files."""
        for one in reversed(self._processes()):
            one.end()
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._watch is not None:
            self._watch.communicate("over\n")

    def _processes(self) -> list[ClusterProcess]:
        return [*([] if self._master is None else [self._master]), *self.workers]

    def _start_worker(self) -> ClusterProcess:
        place = os.path.join(self._directory, f"work-{self._started}")
        arguments = ("--cores", str(self._cores), "--memory", self._memory, "--work-dir", place, self.url)
        return self._start(f"worker {self._started}", f"{_DEPLOY}.worker.Worker", *arguments)

    def _start(self, name: str, program: str, *arguments: str) -> ClusterProcess:
        script = os.path.join(self._environment["SPARK_HOME"], "bin", "spark-class")
        command = [script, program, "--host", HOST, "--webui-port", "0", *arguments]
        self._started += 1
        log = os.path.join(self._directory, f"{name.replace(' ', '-')}.log")
        started = ClusterProcess(name, command, self._environment, log)
        assert self._watch is not None
        assert self._watch.stdin is not None
        self._watch.stdin.write(f"{started.pid}\n")
        self._watch.stdin.flush()
        return started

    def _wait_for_worker(self, worker: ClusterProcess) -> None:
        self._wait(worker, lambda printed: _REGISTERED if _REGISTERED in printed else None)

    def _wait(self, one: ClusterProcess, ready: Callable[[str], str | None]) -> str:
        end = time.monotonic() + self._seconds
        while (found := ready(one.printed())) is None:
            if one.process.poll() is not None:
                raise ClusterError(
                    f"{one.name} of the Spark cluster ended at its start (exit code {one.process.returncode})."
                    f" {_last_words(one)}"
                )
            if time.monotonic() > end:
                what = "has not begun" if one is self._master else f"has not registered with {self.url}"
                raise ClusterError(
                    f"{one.name} of the Spark cluster {what} within {self._seconds:g} s. {_last_words(one)}\n"
                    f"  fix: see that this machine has memory and cores to spare, and that nothing blocks {HOST}"
                )
            time.sleep(_LOOK_EVERY_S)
        return found


def _url_in(printed: str) -> str | None:
    found = _MASTER_URL.search(printed)
    # The URL is printed before it is bound; a worker tries again.
    return None if found is None or "I have been elected leader" not in printed else found[1]


def _check_free(port: int) -> None:
    # Spark would take the next free one, and say so in its log.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise ClusterError(
                f"the master cannot have port {port} of {HOST}: {getattr(error, 'strerror', None) or error}\n"
                "  fix: end the program that has it, or name another one with --port"
            ) from None


def _environment(java: JavaRuntime, directory: str, options: Mapping[str, str]) -> dict[str, str]:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    # Settings of another installation must not count.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    kept.pop("JAVA_HOME", None)
    if java.home is not None:
        kept["JAVA_HOME"] = java.home
    properties = " ".join(f"-D{name}={value}" for name, value in options.items())
    return kept | {
        "SPARK_HOME": os.path.dirname(found.origin),
        "SPARK_CONF_DIR": directory,
        "SPARK_LOCAL_DIRS": directory,
        "SPARK_LOCAL_IP": HOST,
        # They only manage executors, whose memory is their own.
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-Djava.io.tmpdir={directory} {properties}".strip(),
    }


def _last_words(one: ClusterProcess) -> str:
    lines = [line.strip() for line in one.printed().splitlines() if line.strip()]
    return f"It printed: {lines[-1]}" if lines else "It printed nothing"


# -- the program ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None, out: IO[str] = sys.stdout) -> int:
    """``python -m spark_bridge.cluster``: run a cluster until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_bridge.cluster",
        description="A Spark cluster on this machine: a master and workers, on loopback. Runs until Ctrl-C.",
    )
    parser.add_argument("--workers", type=_at_least_one, default=2, help="how many [2]")
    parser.add_argument("--cores", type=_at_least_one, default=1, help="of each worker [1]")
    parser.add_argument("--memory", default="1g", help="of each worker, for executors [1g]")
    parser.add_argument("--port", type=int, help="of the master [a free one]")
    parser.add_argument("--wait", type=float, default=120.0, help="seconds until a process must be ready [120]")
    asked = parser.parse_args(arguments)
    before = signal.signal(signal.SIGTERM, _interrupted)
    try:
        with StandaloneCluster(
            asked.workers, cores=asked.cores, memory=asked.memory, port=asked.port, seconds=asked.wait
        ) as cluster:
            print(
                f"{cluster.url}: {asked.workers} workers with {asked.cores} cores and {asked.memory} each\n"
                f"  weir run JOB --on spark={cluster.url} --storage DIR\n"
                "Ctrl-C ends it",
                file=out,
                flush=True,
            )
            while True:
                cluster.check()
                time.sleep(0.5)
    except KeyboardInterrupt:
        print("the cluster has ended", file=out, flush=True)
        return 0
    except WeirError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
