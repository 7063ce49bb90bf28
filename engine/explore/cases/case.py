"""A case: everything that decides one run of a job under test, as plain data.

A seed is only a way to make a case; the case is the artefact that is replayed, shrunk and written into a regression
test. What a search draws from a seed (configuration, faults by chance) is *concretised* once the run is over:
``faults`` then holds exactly what struck, ``mix`` is empty, and ``schedule`` says where the order of events was not
the usual one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.explore.cases.savepoint_plans import Savepoint
from engine.faults.fault import Fault, FaultMix

Setting = int | str | bool | None

Ranges = tuple[tuple[int, int], ...]
"""Half-open ranges ``(first, last + 1)``, ascending and apart."""

FIFO = "fifo"
RANDOM = "random"
PCT = "pct"
SCHEDULERS = (RANDOM, FIFO, PCT)


@dataclass(frozen=True, slots=True)
class Case:
    """One run.

    ``seed``        of whatever is drawn and not said here;
    ``config``      settings of :class:`engine.runtime.config.RunConfig` by name, as plain values: intervals as text
                    (``"17us"``, ``"3rec"``), ``cost.NAME`` for the cost model, ``parallelism`` for the job's;
    ``faults``      what goes wrong for certain;
    ``mix``         what may go wrong by chance, drawn from the stream ``faults``;
    ``dropped``     by ``source uid/split``: which records (by their number in the split) are left out of the input;
    ``checkpoints`` when checkpoints are triggered, in ns since the start, instead of at an interval; ``None`` = as the
                    configuration says;
    ``savepoints``  what the user does with savepoints: takes them, stops the job, goes on from them in a new one;
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
