"""Ten lines: counts words into files. See README.md."""

from __future__ import annotations

from engine import CollectionSource, FileSink, Job


def job(repeat: str = "1000") -> Job:
    job = Job("wordcount", parallelism=2)
    words = job.source(CollectionSource("to be or not to be".split() * int(repeat)), name="words", parallelism=1)
    pairs = words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0])
    counts = pairs.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count")
    counts.sink(FileSink("counts", bucket=lambda pair: f"word={pair[0]}"))
    return job


SCENARIO = {"params": {"repeat": "5"}}  # weir explore makes thousands of runs, so it takes fewer words
