"""Where a job runs: in the simulator of this process, or on a cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.elements.errors import ConfigurationError

SIMULATOR = "simulator"
_SPARK = "spark"
_MASTER = re.compile(
    r"local(\[(\d+|\*)(, *\d+)?\])?"
    r"|local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]"
    r"|spark://[^/:,\s]+:\d+(,[^/:,\s]+:\d+)*"
    r"|yarn"
    r"|k8s://\S+"
)
"""The masters that Spark knows (Spark documentation, "Master URLs")."""


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """``master``: its URL, ``None`` = two cores of this machine."""

    master: str | None = None

    @property
    def text(self) -> str:
        """The text that :func:`parse_where` reads."""
        return _SPARK if self.master is None else f"{_SPARK}={self.master}"


def parse_where(text: str | None) -> SparkCluster | None:
    """The cluster that ``spark`` or ``spark=MASTER`` names; ``None`` is the simulator, and so is ``simulator``.

    Raises :class:`ConfigurationError` when it names none.
    """
    if text is None or text == SIMULATOR:
        return None
    if text.startswith("spark://"):
        text = f"{_SPARK}={text}"
    kind, _, master = text.partition("=")
    if kind != _SPARK or (not master and "=" in text):
        raise ConfigurationError(
            f"{text!r} is no place to run a job\n  fix: spark, or spark=MASTER with the URL of a Spark master, such as"
            f" spark=local[4] or spark=spark://host:7077; or {SIMULATOR}"
        )
    if master and not _MASTER.fullmatch(master):
        raise ConfigurationError(
            f"{master!r} is no master that Spark knows\n"
            "  fix: write local[N], spark://HOST:PORT, yarn or k8s://URL after spark="
        )
    return SparkCluster(master or None)
