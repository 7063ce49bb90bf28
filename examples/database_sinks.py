"""Two tables that a crash cannot spoil: payments inserted exactly once, and a balance per account that is replaced.

The job is killed twice on its way. At the end every payment is in its table once, the balances are right, and the
ledger table beside them says which transaction made each commit. Run it with SQLite, or with a PostgreSQL server::

    python -m examples.database_sinks
    python -m examples.database_sinks --dsn 'host=localhost dbname=shop'
    weir explore examples/database_sinks.py --time 60s    # with a database in memory, killed in thousands of ways
"""

from __future__ import annotations

import argparse
import tempfile

from engine import DatabaseSink, Job, MemoryDatabase, PostgresDatabase, SequenceSource, SqliteDatabase, UpsertSink
from operators.databases import SinkDatabase

PAYMENTS, ACCOUNTS = 2_000, 4
SCENARIO = {"checkpoint_interval": "12rec", "params": {"payments": "40"}}
KILLS = ("payments-table[0]@600us", "balance[1]@10700us")


def sinks(database: SinkDatabase) -> tuple[DatabaseSink, UpsertSink]:
    """The sinks that the job writes to."""
    payments = DatabaseSink(database, "payments", {"number": "BIGINT", "account": "INT", "amount": "INT"})
    balances = UpsertSink(
        database, "balances", {"account": "INT", "balance": "BIGINT", "payments": "BIGINT"},
        key=["account"], version="payments",
    )  # fmt: skip
    return payments, balances


def job(payments: str = str(PAYMENTS), sqlite: str = "") -> Job:
    """With a database in memory, which ends with the job, or with the file ``sqlite``."""
    return paying(*sinks(SqliteDatabase(sqlite) if sqlite else MemoryDatabase()), int(payments))


def paying(payments_table: DatabaseSink, balances_table: UpsertSink, count: int = PAYMENTS) -> Job:
    """Payments, one table of them, and one of the sums by account."""
    job = Job("paying", parallelism=2)
    payments = job.source(SequenceSource(0, count, splits=2), name="payments").map(
        lambda number: {"number": number, "account": number % ACCOUNTS, "amount": number % 10}, name="read"
    )
    payments.disable_chaining().sink(payments_table, name="payments-table")
    accounts = payments.map(lambda one: (one["account"], one["amount"], 1), name="by account")
    balances = accounts.key_by(lambda one: one[0]).reduce(
        lambda a, b: (a[0], a[1] + b[1], a[2] + b[2]), name="balance"
    )
    return balances.sink(balances_table, name="balances-table")


def main() -> None:
    """Run it, kill it, and read the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dsn", help="write to this database of PostgreSQL instead of a file of SQLite")
    dsn = parser.parse_args().dsn
    with tempfile.TemporaryDirectory() as directory:
        payments, balances = sinks(SqliteDatabase(f"{directory}/shop.sqlite") if dsn is None else PostgresDatabase(dsn))
        result = paying(payments, balances).run(
            checkpoint_interval="250us", batch_size=50, output_dir=directory, kills=KILLS
        )
        rows = payments.committed_rows()
        print(f"{result.attempts} attempts, {len(rows)} payments, {len(dict.fromkeys(rows))} of them different")
        for row in balances.committed_rows():
            print(f"  account, balance, payments: {row}")


if __name__ == "__main__":
    main()
