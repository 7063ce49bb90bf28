"""A streaming query of Spark that writes into a log, as a program: ``python -m tests.crash.jobs.log_query DIRECTORY``.

Each file in ``DIRECTORY/in`` is a batch of numbers. Their triples go into ``DIRECTORY/log``, in two tasks.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spark_bridge import SessionSettings, get_session, register

TOPIC, PARTITIONS = "triples", 2


def main() -> None:
    """Write all that is not in the log yet."""
    place = Path(sys.argv[1])
    spark = get_session(SessionSettings(short_lived=True))
    register(spark)
    numbers = spark.readStream.schema("value bigint").option("maxFilesPerTrigger", "1").csv(str(place / "in"))
    triples = numbers.repartition(PARTITIONS).selectExpr("value * 3 AS value")
    query = triples.writeStream.format("weir.log").option("topic", TOPIC).option("partitions", str(PARTITIONS))
    query = query.option("checkpointLocation", str(place / "query")).trigger(availableNow=True)
    query.start(str(place / "log")).awaitTermination()


if __name__ == "__main__":
    main()
