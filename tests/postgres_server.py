"""A PostgreSQL server of the tests' own: a temporary data directory, a free port on loopback, and nothing shared with
any other server of the machine.

Root may not run PostgreSQL, so as root the server runs as the user ``postgres``, who comes with Debian's package.
Without the binaries the tests that need a server are skipped, except under continuous integration, where they fail.

No server outlives the process that started it, however that dies: on Linux the kernel stops it then. Elsewhere, and
for files left on the disk, the start of the next server looks for directories whose owner is gone.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

USER = "weir"
_PREFIX = "weir-postgres-"
_OWNER = "owner"
"""The file in a server's directory that says which process has started it."""
MISSING = (
    "no PostgreSQL server was found (initdb and postgres, in PATH or under /usr/lib/postgresql/*/bin); "
    "Debian, Ubuntu: apt-get install postgresql"
)


def binaries() -> Path | None:
    """The directory of the newest server's programs."""
    found = shutil.which("initdb")
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: _version(path.parts[-3]))
    if found:
        candidates.append(Path(found).resolve())
    usable = [path.parent for path in candidates if (path.parent / "postgres").exists()]
    return usable[-1] if usable else None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def needs_server() -> None:
    """Skip the test, or fail under continuous integration, when there is no server to start."""
    if binaries() is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)


@contextmanager
def running_server(*, max_prepared_transactions: int = 64, fsync: bool = True) -> Iterator[PostgresServer]:
    """A server while the block runs; skips, or fails, where there is none to start."""
    needs_server()
    remove_orphans()
    server = PostgresServer(max_prepared_transactions=max_prepared_transactions, fsync=fsync)
    try:
        server.start()
        yield server
    finally:
        server.remove()


class PostgresServer:
    """One server; it may be stopped, killed and started again, always on the same port and data."""

    def __init__(self, *, max_prepared_transactions: int = 64, fsync: bool = True) -> None:
        found = binaries()
        assert found is not None, MISSING
        self._binaries = found
        # Not below pytest's directories, which only their owner may enter.
        self.directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
        (self.directory / _OWNER).write_text(_identity(os.getpid()) or "")
        self.port = _free_port()
        self._settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_prepared_transactions": max_prepared_transactions,
            "fsync": "on" if fsync else "off",
            "shared_buffers": "16MB",
            "max_connections": 60,
            "autovacuum": "off",
            "logging_collector": "off",
        }
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            shutil.chown(self.directory, "postgres", "postgres")
        pristine = _pristine()
        if not pristine.exists():
            options = ("-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
            self._run("initdb", "-D", str(pristine), *options)
        subprocess.run(["cp", "-a", str(pristine), str(self.data)], check=True)

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def dsn(self, database: str = "postgres") -> str:
        return f"host=127.0.0.1 port={self.port} user={USER} dbname={database}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        done = subprocess.run(
            command, cwd="/", capture_output=True, text=True, check=False, timeout=60, **_as_server_user()
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        # A "fast" shutdown when this process dies. The thread counts here, and only the main one lives as long.
        is_main = threading.current_thread() is threading.main_thread()
        bound = ["setpriv", "--pdeathsig", "INT", "--"] if is_main and shutil.which("setpriv") else []
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*bound, str(self._binaries / "postgres"), "-D", str(self.data), *settings],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_as_server_user(),
            )
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return when it takes connections; fail when it has not after 30 s."""
        import psycopg

        until = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.dsn(), connect_timeout=5).close()
            except psycopg.OperationalError:
                is_running = self._process is not None and self._process.poll() is None
                assert is_running, f"the server has ended: {self.log.read_text()[-2000:]}"
                assert time.monotonic() < until, f"the server takes no connections: {self.log.read_text()[-2000:]}"
                time.sleep(0.02)
            else:
                return

    def _postmaster(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def stop(self) -> None:
        """Stop it in order (a "fast" shutdown)."""
        if self._process is not None:
            if self._process.poll() is None:
                os.kill(self._postmaster(), signal.SIGINT)
            self._wait()

    def kill9(self) -> None:
        """Kill every process of it with SIGKILL: data that was not flushed is gone."""
        assert self._process is not None
        postmaster = self._postmaster()
        # Stopped first: a child that it makes meanwhile would live on, and keep a new server from starting.
        os.kill(postmaster, signal.SIGSTOP)
        children = _children(postmaster)
        for process in [postmaster, *children]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._wait()
        until = time.monotonic() + 30
        while any(map(_is_alive, children)):
            assert time.monotonic() < until, f"killed, and still there: {children}"
            time.sleep(0.002)

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait(timeout=60)
        self._process = None

    def restart(self) -> None:
        """Start it again; after :meth:`kill9` it recovers from its log."""
        if self._process is not None:
            self.stop()
        self.start()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory)

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement in a connection of its own."""
        import psycopg

        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description is not None else []


@cache
def _pristine() -> Path:
    """Where the data directory is kept that every server of this process begins with: to make one takes a second."""
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
    (directory / _OWNER).write_text(_identity(os.getpid()) or "")
    if os.geteuid() == 0:
        shutil.chown(directory, "postgres", "postgres")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory / "pristine"


def _as_server_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    return {"user": "postgres", "group": "postgres", "extra_groups": []}


def _identity(process: int) -> str | None:
    """A process, and when it was started, for numbers are used again; ``None`` when there is none."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else f"{process} {fields[19]}"


def remove_orphans(temporary: Path | None = None) -> list[Path]:
    """Stop servers whose owner is gone, and delete their directories, which are returned."""
    removed = []
    for directory in sorted((temporary or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*")):
        try:
            owner = (directory / _OWNER).read_text()
        except OSError:
            # It is just being made, or deleted.
            continue
        if not owner or _identity(int(owner.split()[0])) == owner:
            continue
        _kill_server_of(directory / "data")
        shutil.rmtree(directory, ignore_errors=True)
        removed.append(directory)
    return removed


def _kill_server_of(data: Path) -> None:
    with suppress(OSError, ValueError, IndexError):
        postmaster = int((data / "postmaster.pid").read_text().split()[0])
        # By its directory: the number may belong to another process by now.
        if str(data) in Path(f"/proc/{postmaster}/cmdline").read_text().split("\0"):
            os.kill(postmaster, signal.SIGKILL)


def _children(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found


def _is_alive(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    # Dead ones that no parent has reaped hold nothing any more.
    return status.rpartition(")")[2].split()[0] not in "ZX"


_PORTS = count(10_000 + os.getpid() * 61 % 20_000)
"""Below those that the system gives to connections, which could take one while its server is down; another process
begins elsewhere."""


def _free_port() -> int:
    while True:
        port = next(_PORTS)
        with suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            return port
