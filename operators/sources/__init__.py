"""Reading: ``operator`` runs a source in turns and keeps its positions, ``source_context`` is what a source has of it;
``in_memory`` holds the sources that need no file: a collection, a sequence of ints, a generator function.
"""

from __future__ import annotations

from operators.sources.in_memory import (
    CollectionSource,
    GeneratorSource,
    NumberedSplits,
    Pause,
    SequenceSource,
    check_splits,
    share,
    split_index,
    start_in,
)
from operators.sources.operator import RunningSplit, SavedSplit, SourceOperator, reading_from, saved_shape, source_of

__all__ = [
    "CollectionSource",
    "GeneratorSource",
    "NumberedSplits",
    "Pause",
    "SequenceSource",
    "SourceOperator",
    "SavedSplit",
    "RunningSplit",
    "check_splits",
    "reading_from",
    "saved_shape",
    "share",
    "source_of",
    "split_index",
    "start_in",
]
