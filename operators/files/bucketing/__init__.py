"""The bucketing sink: rows of text in files that are in progress, pending, finished (Flink: ``BucketingSink``).
``bucketing_parts`` and their ``names``; the ``journal`` for going back to an older checkpoint; ``valid_length`` and
``late_truncation`` for file systems that cannot cut a file at once; ``part_writers`` for records that are no lines.
"""

from __future__ import annotations

from operators.files.bucketing.names import (
    IN_PROGRESS as IN_PROGRESS,
    PENDING as PENDING,
    BucketingNames as BucketingNames,
)
from operators.files.bucketing.part_writers import (
    AvroWriter as AvroWriter,
    LineWriter as LineWriter,
    SequenceWriter as SequenceWriter,
    Writer as Writer,
    sequence_records as sequence_records,
)
from operators.files.bucketing.sink import (
    BucketingSink as BucketingSink,
    read_bucketing_output as read_bucketing_output,
)
