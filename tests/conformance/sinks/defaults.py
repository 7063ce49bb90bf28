"""The default values of the product, in the words of the vectors of kind ``constants``."""

from __future__ import annotations

from operators.files.rolling_policies import DefaultRollingPolicy


def defaults() -> dict[str, dict[str, object]]:
    """By the thing that has them."""
    rolling = DefaultRollingPolicy()
    return {
        "default_rolling_policy": {
            "max_part_size": rolling.max_part_size_bytes,
            "rollover_interval_ms": rolling.rollover_interval_ms,
            "inactivity_interval_ms": rolling.inactivity_interval_ms,
        },
    }
