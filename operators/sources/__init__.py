"""Sources: ``source_operator`` runs a source in turns and keeps its positions (``source_splits``), ``source_context``
connects it with its operator; ``discovering_source_operator`` finds splits that come later; ``in_memory`` holds the
sources that need no file: a collection, a sequence of ints, a generator function. ``arrivals`` brings records at times
of their own; ``function_source`` is made of a function with state, ``spout_source`` calls a program back.
"""

from __future__ import annotations

from operators.sources.arrivals import Arrivals as Arrivals, ArrivalsOperator as ArrivalsOperator
from operators.sources.discovering_source_operator import (
    DiscoveringSourceOperator as DiscoveringSourceOperator,
    check_discovery as check_discovery,
    discovering_factory as discovering_factory,
)
from operators.sources.function_source import (
    FunctionSource as FunctionSource,
    SourceFunction as SourceFunction,
    SourceFunctionContext as SourceFunctionContext,
)
from operators.sources.in_memory import (
    CollectionSource as CollectionSource,
    GeneratorSource as GeneratorSource,
    Pause as Pause,
    RangeReader as RangeReader,
    RangeSource as RangeSource,
    SequenceSource as SequenceSource,
    start_in as start_in,
    table_kind as table_kind,
)
from operators.sources.source_operator import (
    SourceOperator as SourceOperator,
    reading_from as reading_from,
    source_of as source_of,
)
from operators.sources.source_splits import (
    NO_SPLIT as NO_SPLIT,
    RunningSplit as RunningSplit,
    SavedSplit as SavedSplit,
    saved_shape as saved_shape,
)
from operators.sources.spout_source import SpoutSource as SpoutSource
