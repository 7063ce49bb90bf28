"""The layers: every room has its place in setup.cfg, and the contracts there notice when one is broken."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.doors import CONVERTED
from tests.house.project import ROOT, config_list, python_files, setup_cfg

LAYERS = config_list(setup_cfg()["importlinter:contract:layers"]["layers"])
ROOMS = [room.strip(" ()") for layer in LAYERS for room in re.split("[:|]", layer)]


def _rooms_of(package: str) -> list[str]:
    contract = setup_cfg()[f"importlinter:contract:rooms-of-{package.replace('_', '-')}"]
    return [f"{package}.{room}" for room in config_list(contract["layers"])]


# One import per contract that must not be; some hide inside a function.
VIOLATIONS = {
    "Layers: an arrow may only point down": ("engine/graph/bad.py", "def f():\n    import engine.runtime\n"),
    "Rooms of operators: an arrow may only point down": (
        "operators/time/bad.py", "def f():\n    from operators.windows import assigners\n",
    ),
    "Rooms of operators.files: an arrow may only point down": (
        "operators/files/writing/bad.py", "def f():\n    import operators.files.sinks\n",
    ),
    "Rooms of operators.log: an arrow may only point down": (
        "operators/log/port/bad.py", "import operators.log.disk\n",
    ),
    "Rooms of operators.table: an arrow may only point down": (
        "operators/table/partitions/bad.py", "def f():\n    import operators.table.staging\n",
    ),
    "Rooms of state_backends: an arrow may only point down": (
        "state_backends/base/bad.py", "def f():\n    import state_backends.heap\n",
    ),
    "Rooms of engine.checkpoint: an arrow may only point down": (
        "engine/checkpoint/barriers/bad.py", "import engine.checkpoint.coordinator\n",
    ),
    "Rooms of engine.runtime: an arrow may only point down": (
        "engine/runtime/tasks/bad.py", "import engine.runtime.job\n",
    ),
    "Rooms of engine.explore: an arrow may only point down": (
        "engine/explore/run/bad.py", "def f():\n    import engine.explore.ledger\n",
    ),
    "Rooms of engine.cli: an arrow may only point down": ("engine/cli/shell/bad.py", "import engine.cli.runs\n"),
    "state_backends knows nothing of the engine": ("state_backends/bad.py", "import engine.elements\n"),
    "The runtime imports no instrument": ("engine/runtime/bad.py", "import engine.observe.trace\n"),
    "The second opinion is not the engine": ("engine/explore/opinion/bad.py", "import engine.checkpoint\n"),
    "Only spark_bridge imports Spark": ("operators/bad.py", "import pyspark.sql\n"),
    "No package imports tests, examples or benchmarks": ("engine/cli/bad.py", "import examples.demo\n"),
}


def _copy_of_the_house(directory: Path) -> None:
    """Empty packages under the names of the real rooms, with the project's own contracts."""
    observers = [f"engine.observe.{name}" for name in ("trace", "metrics", "cut_oracle")]
    inner = [room for package in CONVERTED for room in _rooms_of(package)]
    modules = [*ROOMS, *observers, *inner]
    for module in modules:
        folder = directory / module.replace(".", "/")
        folder.mkdir(parents=True, exist_ok=True)
        for parent in (folder, *folder.parents):
            if parent == directory:
                break
            (parent / "__init__.py").touch()
    (directory / "setup.cfg").write_bytes((ROOT / "setup.cfg").read_bytes())


def _lint_imports(directory: Path) -> str:
    """The findings of import-linter about the packages in a directory."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(directory), "NO_COLOR": "1", "COLUMNS": "200"}
    finished = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    return finished.stdout + finished.stderr


def _verdicts(output: str) -> dict[str, str]:
    return dict(re.findall(r"^(\S.*?) (KEPT|BROKEN)\b", output, flags=re.MULTILINE))


def test_each_contract_is_kept_by_a_clean_house(tmp_path: Path) -> None:
    """Without a breach no contract complains, so a complaint means something."""
    _copy_of_the_house(tmp_path)
    output = _lint_imports(tmp_path)

    assert _verdicts(output) == dict.fromkeys(VIOLATIONS, "KEPT"), output


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_each_contract_is_broken_by_its_violation(contract: str, tmp_path: Path) -> None:
    """A forbidden import breaks the contract that forbids it, inside a function too."""
    _copy_of_the_house(tmp_path)
    path, source = VIOLATIONS[contract]
    (tmp_path / path).write_text(source)
    output = _lint_imports(tmp_path)

    assert _verdicts(output)[contract] == "BROKEN", output


def test_every_room_has_a_layer() -> None:
    """A package of the engine that no layer names could import anything; so each is named."""
    modules = {path.relative_to(ROOT).parts for path in python_files("engine")}
    rooms = {f"engine.{parts[1].removesuffix('.py')}" for parts in modules} - {"engine.__init__", "engine.__main__"}

    assert sorted(rooms - set(ROOMS)) == []


def test_layers_name_the_rooms_in_order() -> None:
    """The order of the layers is the order of the design; faces on top, state at the bottom."""
    order = [
        "engine.cli", "engine.view", "engine.study", "engine.job_runner", "engine.report", "spark_bridge",
        "engine.explore", "engine.faults", "engine.runtime", "engine.protocols", "engine.checkpoint",
        "engine.graph", "operators", "engine.elements", "engine.observe", "state_backends",
    ]  # fmt: skip

    assert order == ROOMS


def test_the_runtime_knows_faults_by_their_hook_alone() -> None:
    """Outside its room the runtime does not name interference; only the module that assembles a run builds it."""
    knows = re.compile(r"interference|StruckDown|runtime\.faulted", re.IGNORECASE)
    outside = [path for path in python_files("engine/runtime") if path.parent.name != "faulted"]

    found = [path.name for path in outside if knows.search(path.read_text("utf-8"))]

    assert found == ["execution.py", "hook.py"]
