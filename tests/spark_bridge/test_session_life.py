"""The life of the JVM, in processes of their own: it starts, dies, is replaced, and leaves no files or processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# The JVM notices the end of its stdin at once and then shuts Spark down.
_SHUTDOWN_TIMEOUT_SECONDS = 30


def run_program(program: str, temporary_directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program whose temporary files, and those of its JVM, go into a directory of their own."""
    environment = os.environ | {"TMPDIR": str(temporary_directory)}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False, env=environment
    )


def test_a_batch_leaves_no_output_and_no_files(tmp_path: Path) -> None:
    """A whole life, from import to exit, prints what the program prints and leaves the disk as it was."""
    answer = run_program(
        "from spark_bridge import run_batch\n"
        "print(run_batch(lambda f: f.selectExpr('a + 1 as b'), [(2,), (1,)], 'a int', parquet_threshold_rows=0))\n",
        tmp_path,
    )

    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "[{'b': 2}, {'b': 3}]\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_dead_jvm_is_explained_and_replaced(tmp_path: Path) -> None:
    """The batch in which Spark dies says so; the next one runs in a new session; the dead one's files are deleted."""
    answer = run_program(
        "from spark_bridge import SparkTransformError, run_batch, session, stop_session, get_session\n"
        "def kill_spark(frame):\n"
        "    session._running.jvm.process.kill()\n"
        "    return frame\n"
        "first = get_session()\n"
        "try:\n"
        "    run_batch(kill_spark, [(1,)], 'a int')\n"
        "except SparkTransformError as error:\n"
        "    print('the Spark process has died' in str(error))\n"
        "print(run_batch(lambda frame: frame, [(1,)], 'a int'), get_session() is first)\n"
        "stop_session()\n"
        "import tempfile, os\n"
        "print(os.listdir(tempfile.gettempdir()))\n",
        tmp_path,
    )

    assert answer.stdout == "True\n[{'a': 1}] False\n[]\n", answer.stderr
    assert answer.returncode == 0


def test_stop_ends_the_jvm_and_a_new_one_may_differ(tmp_path: Path) -> None:
    """After `stop_session` the process is gone, not idle, so the next session can have another heap."""
    answer = run_program(
        "from spark_bridge import SessionSettings, get_session, session, session_is_running, stop_session\n"
        "get_session()\n"
        "process = session._running.jvm.process\n"
        "stop_session()\n"
        "print(process.poll() is not None, session_is_running())\n"
        "heap = SessionSettings(driver_memory='1g')\n"
        "print(get_session(heap).sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory() <= 2**30)\n",
        tmp_path,
    )

    assert (answer.stdout, answer.stderr) == ("True False\nTrue\n", "")


def test_a_killed_program_takes_its_jvm_and_files_with_it(tmp_path: Path) -> None:
    """SIGKILL on the program ends the JVM by itself, and deletes its files, those of an open batch included."""
    answer = run_program(
        "import os, signal\n"
        "from spark_bridge import rows_on_spark, session\n"
        "with rows_on_spark([(1,)], 'a int', parquet_threshold_rows=0) as frame:\n"
        "    frame.count()\n"
        "    print(session._running.jvm.process.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n",
        tmp_path,
    )

    assert answer.returncode == -signal.SIGKILL
    jvm_pid = int(answer.stdout)
    # A real process has no virtual time: the test waits for its end, and the wait is bounded.
    deadline = time.monotonic() + _SHUTDOWN_TIMEOUT_SECONDS
    while time.monotonic() < deadline and (Path(f"/proc/{jvm_pid}").exists() or any(tmp_path.iterdir())):
        time.sleep(0.1)
    assert not Path(f"/proc/{jvm_pid}").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_session_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A setting that Spark refuses gives one error that quotes Spark; no process and no file remains."""
    answer = run_program(
        "from spark_bridge import SessionSettings, SparkBridgeError, get_session, session_is_running\n"
        "try:\n"
        "    get_session(SessionSettings(driver_memory='lots'))\n"
        "except SparkBridgeError as error:\n"
        "    print('did not start' in str(error), 'lots' in str(error).split('It printed:')[1])\n"
        "print(session_is_running())\n",
        tmp_path,
    )

    assert (answer.stdout, answer.stderr) == ("True True\nFalse\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_session_starts_in_the_background(tmp_path: Path) -> None:
    """Every thread that asks meanwhile gets the one session; an error of the start is raised where the session is
    needed; ending the process at once leaves nothing. The quick compiler has as much room for its code as Java gives it
    together with the other one."""
    answer = run_program(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from spark_bridge import SessionSettings, SparkBridgeError, get_session, session_is_running, start_session\n"
        "start_session(SessionSettings(master='spark://127.0.0.1:9'))\n"
        "try:\n"
        "    get_session()\n"
        "except SparkBridgeError as error:\n"
        "    print('no Spark master answers' in str(error))\n"
        "start_session(SessionSettings(short_lived=True))\n"
        "print(session_is_running())\n"
        "pool = ThreadPoolExecutor(3)\n"
        "sessions = [pool.submit(get_session).result for _ in range(3)]\n"
        "print({id(wait()) for wait in sessions} == {id(get_session())}, get_session().range(3).count())\n"
        "beans = get_session()._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()\n"
        "print(sum(one.getUsage().getMax() for one in beans if one.getName().startswith('Code')) >= 240 << 20)\n",
        tmp_path,
    )

    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "True\nFalse\nTrue 3\nTrue\n", "")
    answer = run_program("from spark_bridge import start_session\nstart_session()\n", tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_workers_import_while_a_session_starts(tmp_path: Path) -> None:
    """Each of them, what there is to import; a module that is missing is nothing to tell. A process that ends meanwhile
    ends without a word."""
    begin = "from spark_bridge import SessionSettings, get_session\n"
    answer = run_program(
        f"{begin}import sys, threading\n"
        "spark = get_session(SessionSettings(imports=('no_such_module', 'wave')))\n"
        "[one.join() for one in threading.enumerate() if one.name == 'weir-workers']\n"
        "numbers = spark.sparkContext.parallelize(range(4), 4)\n"
        "print(set(numbers.map(lambda _: 'wave' in sys.modules).collect()), 'wave' in sys.modules)\n",
        tmp_path,
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "{True} False\n", "")
    answer = run_program(f"{begin}get_session(SessionSettings(imports=('wave',)))\n", tmp_path)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_a_session_serves_other_processes(tmp_path: Path) -> None:
    """Forked ones, also from a process with a session: they see its tables, and end without ending it. An address where
    nothing answers is one error."""
    answer = run_program(
        "import multiprocessing, socket\n"
        "from spark_bridge import SessionAddress, SparkBridgeError, get_session, run_batch, session_address\n"
        "from spark_bridge import stop_session, use_session_at\n"
        "def read(connection):\n"
        "    use_session_at(connection.recv)\n"
        "    numbers = get_session().table('numbers')\n"
        "    connection.send((numbers.count(), run_batch(lambda frame: frame, [(7,)], 'a int')))\n"
        "def ask(process):\n"
        "    ours, theirs = fork.Pipe()\n"
        "    child = fork.Process(target=process, args=(theirs,))\n"
        "    child.start()\n"
        "    ours.send(session_address())\n"
        "    print(ours.recv())\n"
        "    child.join()\n"
        "fork = multiprocessing.get_context('fork')\n"
        "get_session().range(3).createOrReplaceTempView('numbers')\n"
        "ask(read)\n"
        "ask(read)\n"
        "print(get_session().table('numbers').count(), session_address().secret in repr(session_address()))\n"
        "stop_session()\n"
        "with socket.create_server(('127.0.0.1', 0)) as taken:\n"
        "    nobody = taken.getsockname()[1]\n"
        "use_session_at(lambda: SessionAddress(nobody, 'x'))\n"
        "try:\n"
        "    get_session()\n"
        "except SparkBridgeError as error:\n"
        "    print('no session of Spark answers' in str(error))\n",
        tmp_path,
    )

    served = "(3, [{'a': 7}])\n"
    assert (answer.stdout, answer.stderr) == (f"{served}{served}3 False\nTrue\n", "")
    assert list(tmp_path.iterdir()) == []
