"""What every data source has in common: its registration and its options."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_bridge import register, session
from spark_bridge.errors import PySparkMissingError
from spark_bridge.registered.source_options import SourceOptions

NAMES = ["weir.checkpoints", "weir.log", "weir.state", "weir.trace"]


def test_all_sources_are_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under their names; without PySpark the error says what to install."""
    found: list[str] = []
    spark: Any = SimpleNamespace(dataSource=SimpleNamespace(register=lambda source: found.append(source.name())))
    register(spark)
    assert sorted(found) == NAMES
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with pytest.raises(PySparkMissingError, match="pyspark and pyarrow not installed"):
        register(spark)


def test_options_are_in_any_case_and_paths_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with Spark's own sources."""
    monkeypatch.chdir(tmp_path)
    options = SourceOptions("weir.x", {"PATH": "a/b", "Operator": "sum"}, ["path"], ["operator"])
    assert (options.place()[1], options.get("operator")) == (str(tmp_path / "a/b"), "sum")
