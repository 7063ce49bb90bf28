"""A PostgreSQL server that is killed with SIGKILL and comes back, or stays away, while a sink is at work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from operators.databases import DatabaseError
from tests.operators.databases.cluster import IMPATIENT, Cluster, prepared
from tests.postgres_server import PostgresServer, running_server

Make = Callable[..., Cluster]


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[PostgresServer]:
    """A server that flushes its commits, unlike that of the other tests."""
    with running_server(fsync=True) as server:
        yield server


def test_a_server_killed_between_prepare_and_commit_has_it_all_when_it_is_back(
    postgres_server: PostgresServer, postgres_dsn: str, postgres_cluster_of: Make
) -> None:
    """The notification finds its connection broken, makes another one, and commits."""
    cluster = postgres_cluster_of(batch_rows=1)
    cluster.write(1, 2)
    checkpoint = cluster.checkpoint()
    cluster.tasks[0].process([(3, "")])
    postgres_server.kill9()
    postgres_server.restart()
    assert len(prepared(postgres_dsn)) == 1
    cluster.tasks[0].complete(checkpoint.id)
    assert cluster.visible() == [1, 2]
    with pytest.raises(DatabaseError):
        cluster.tasks[0].process([(4, "")])
    cluster.crash()
    cluster.write(3, 4)
    cluster.checkpoint(0)
    assert cluster.visible() == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_server_that_comes_back_late_is_waited_for(
    postgres_server: PostgresServer, postgres_cluster_of: Make
) -> None:
    """The sink waits in wall time, and only in requests that may be repeated."""
    cluster = postgres_cluster_of(patience={"reconnects": 20, "reconnect_wait_s": 0.05})
    cluster.write(1)
    checkpoint = cluster.checkpoint()
    postgres_server.kill9()
    comes_back = threading.Timer(0.5, postgres_server.restart)
    comes_back.start()
    try:
        cluster.tasks[0].complete(checkpoint.id)
    finally:
        comes_back.join()
    assert cluster.visible() == [1]


def test_a_server_that_stays_away_fails_the_task_and_the_restore_makes_it_good(
    postgres_server: PostgresServer, postgres_cluster_of: Make
) -> None:
    """Each step reports that no server answers; nothing is lost, nothing is there twice."""
    cluster = postgres_cluster_of(patience=IMPATIENT, batch_rows=1)
    cluster.write(1)
    checkpoint = cluster.checkpoint()
    postgres_server.kill9()
    try:
        with pytest.raises(DatabaseError, match=r"connection|refused"):
            cluster.tasks[0].complete(checkpoint.id)
        with pytest.raises(DatabaseError):
            cluster.write(2)
        with pytest.raises(DatabaseError):
            cluster.snapshot()
        cluster.tasks[0].close()
        assert cluster.counter("numAbortsFailed") == 1
        with pytest.raises(DatabaseError):
            cluster.start()
    finally:
        postgres_server.restart()
    cluster.start()
    cluster.write(2)
    cluster.checkpoint(0)
    assert cluster.visible() == [1, 2]
