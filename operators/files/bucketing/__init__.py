"""The bucketing sink: rows of text in files that are in progress, pending, finished (Flink: ``BucketingSink``).
``parts`` and their ``names``, the ``journal`` to go back with, ``valid_length`` and ``late_truncation`` for file
systems that cannot cut a file at once.
"""

from __future__ import annotations

from operators.files.bucketing.names import IN_PROGRESS, PENDING, BucketingNames
from operators.files.bucketing.sink import BucketingSink, read_bucketing_output

__all__ = [
    "BucketingNames",
    "BucketingSink",
    "IN_PROGRESS",
    "PENDING",
    "read_bucketing_output",
]
