"""Where a job runs: in the simulator of this process, or on a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from engine.elements.errors import ConfigurationError

_SPARK = "spark"


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """``master``: its URL, ``None`` = two cores of this machine."""

    master: str | None = None


def parse_where(text: str | None) -> SparkCluster | None:
    """The cluster that ``spark`` or ``spark=MASTER`` names; ``None`` is the simulator.

    Raises :class:`ConfigurationError` when it names none.
    """
    if text is None:
        return None
    kind, _, master = text.partition("=")
    if kind != _SPARK or (not master and "=" in text):
        raise ConfigurationError(
            f"{text!r} is no place to run a job\n  fix: spark, or spark=MASTER with the URL of a Spark master, such as"
            " spark=local[4] or spark=spark://host:7077"
        )
    return SparkCluster(master or None)
