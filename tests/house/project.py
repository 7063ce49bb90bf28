"""Where things are in the checkout, and which rooms must be deterministic. Shared by the house tests."""

from __future__ import annotations

import configparser
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "operators", "state_backends", "spark_bridge")

# The rooms that run under the simulated clock. The rooms above them may look at the real world.
DETERMINISTIC_ROOMS = (
    "engine/runtime",
    "engine/protocols",
    "engine/checkpoint",
    "engine/graph",
    "engine/elements",
    "engine/observe",
    "operators",
    "state_backends",
)

_SKIPPED_DIRECTORIES = frozenset(("__pycache__", "build", "dist", "out", "node_modules"))


def is_skipped(directory: Path) -> bool:
    """Whether a directory holds caches or products instead of our own text."""
    name = directory.name
    return name in _SKIPPED_DIRECTORIES or name.endswith(".egg-info") or (name[:1] == "." and name != ".ci")


def files_under(directory: Path) -> Iterator[Path]:
    """Every file of ours below `directory`, sorted, without caches, products and hidden directories."""
    for entry in sorted(directory.iterdir()):
        if entry.is_dir():
            if not is_skipped(entry):
                yield from files_under(entry)
        elif entry.is_file():
            yield entry


def python_files(*directories: str) -> list[Path]:
    """The Python files below the named directories of the checkout; a missing directory has none."""
    found: list[Path] = []
    for name in directories:
        if (ROOT / name).is_dir():
            found += [path for path in files_under(ROOT / name) if path.suffix == ".py"]
    return found


def relative(path: Path) -> str:
    """The path as the messages print it: relative to the checkout, with `/`."""
    return path.relative_to(ROOT).as_posix()


def setup_cfg() -> configparser.ConfigParser:
    """The project's `setup.cfg`, read without interpolation."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def config_list(text: str) -> list[str]:
    """The lines of a multi-line value of `setup.cfg`, without blank ones and comments."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
