"""A case: everything that decides one run of a job under test, as plain data.

A seed is only a way to make a case. The case itself is replayed, shrunk and written into a regression test. A search
draws configuration and chance faults from a seed; after the run these draws are *concretised*: ``faults`` then holds
exactly the faults that struck, ``mix`` is empty, and ``schedule`` holds the places where the order of events differed
from the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.explore.cases.savepoint_plans import Savepoint
from engine.faults.fault import Fault, FaultMix

Setting = int | str | bool | None

Ranges = tuple[tuple[int, int], ...]
"""Half-open ranges ``(first, last + 1)``, ascending and not adjacent."""

FIFO = "fifo"
RANDOM = "random"
PCT = "pct"
SCHEDULERS = (RANDOM, FIFO, PCT)


@dataclass(frozen=True, slots=True)
class Case:
    """One run.

    ``seed``        seeds all draws that the other fields do not fix;
    ``config``      settings of :class:`engine.runtime.config.RunConfig` by name, as plain values: intervals as text
                    (``"17us"``, ``"3rec"``), ``cost.NAME`` for the cost model, ``parallelism`` for the job's;
    ``faults``      faults that strike for certain;
    ``mix``         faults that may strike by chance, drawn from the stream ``faults``;
    ``dropped``     by ``source uid/split``: records (by their number in the split) that are left out of the input;
    ``checkpoints`` when checkpoints are triggered, in ns since the start, instead of at an interval; ``None`` = as the
                    configuration says;
    ``savepoints``  the user's actions with savepoints: take one, stop the job, resume from it in a new job;
    ``scheduler``   how the next of the ready events is chosen: ``random`` from the seed, ``fifo``, or ``pct``
                    (priorities with a few changes: Burckhardt et al., ASPLOS 2010);
    ``schedule``    with ``fifo``: the draws of the stream ``schedule`` (by number, from 0) that are not 0;
    ``preemptions`` with ``pct``: how many changes of priority there are.
    """

    seed: str = "0"
    config: Mapping[str, Setting] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    mix: FaultMix = field(default_factory=FaultMix)
    dropped: Mapping[str, Ranges] = field(default_factory=dict)
    checkpoints: tuple[int, ...] | None = None
    savepoints: tuple[Savepoint, ...] = ()
    scheduler: str = RANDOM
    schedule: Mapping[int, int] = field(default_factory=dict)
    preemptions: int = 3

    def with_config(self, **settings: Setting) -> Case:
        return replace(self, config={**self.config, **settings})
