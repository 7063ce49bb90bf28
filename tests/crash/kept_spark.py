"""One Spark for many drivers: a JVM that outlives each of them, as executors of a cluster do.

A session takes longer to start than the batches that a driver makes before it is killed. And what a dead driver had
begun goes on here to its end, while the next driver already works: its workers write snapshots and parts of sinks.

Run as a program it starts Spark, and for each line on its standard input it prints how one more driver connects.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spark_bridge.session import SessionSettings, get_session, stop_session

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class KeptSpark:
    """Owns the process; ends it with :meth:`close`."""

    def __init__(self, master: str = "", properties: Mapping[str, str] | None = None) -> None:
        """``master``: two local cores without it; ``properties``: of Spark."""
        command = [sys.executable, "-m", __name__, master, json.dumps(dict(properties or {}))]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def one_more(self) -> tuple[int, str]:
        """Port and secret for one driver: no two share a way back, on which one could be taken for the other."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        port, secret = json.loads(self._process.stdout.readline())
        return port, secret

    def close(self) -> None:
        self._process.communicate()


def connect(port: int, secret: str) -> None:
    """Make that Spark the running one of this process: the next session is one of its sessions."""
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.sql import SparkSession

    os.environ |= {
        "PYSPARK_GATEWAY_PORT": str(port),
        "PYSPARK_GATEWAY_SECRET": secret,
        "PYSPARK_PYTHON": sys.executable,
    }
    gateway: Any = java_gateway.launch_gateway()  # type: ignore[no-untyped-call]
    jvm = gateway.jvm
    context = jvm.org.apache.spark.api.java.JavaSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    SparkSession(SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf())))


def main() -> None:
    """Print ``[port, secret]`` for each line."""
    _, master, properties = sys.argv
    wanted = SessionSettings(extra=json.loads(properties))
    context: Any = get_session(replace(wanted, master=master) if master else wanted).sparkContext
    kept = []
    for _line in sys.stdin:
        server = context._jvm.org.apache.spark.api.python.Py4JServer(context._jsc.sc().conf())
        server.start()
        kept.append(server)
        print(json.dumps([server.getListeningPort(), server.secret()]), flush=True)
    stop_session()


if __name__ == "__main__":
    main()
