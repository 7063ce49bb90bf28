"""The check at start-up: are the four packages one project?

They are imported under plain names (``operators`` is one), so a folder of that name in the user's working directory or
on ``PYTHONPATH`` can come before ours. The errors that would follow do not show the cause; this one does. The check
runs before anything else of the project is imported and imports nothing itself.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("engine", "operators", "state_backends", "spark_bridge")


def shadowed_packages() -> dict[str, str]:
    """The packages that would not be imported from beside this one, with the place they would come from."""
    root = Path(__file__).resolve().parents[3]
    found = {name: package_root(name) for name in PACKAGES}
    return {name: str(place) for name, place in found.items() if place != root}


def package_root(name: str) -> Path | str:
    """The directory that holds package ``name``, or why there is none."""
    loaded = sys.modules.get(name)
    spec = find_spec(name) if loaded is None else loaded.__spec__
    if spec is None:
        return "not found"
    if spec.origin is None or not spec.origin.endswith("__init__.py"):
        places = [str(place) for place in spec.submodule_search_locations or ()]
        return f"{', '.join(places) or spec.origin} (no package with an __init__.py)"
    return Path(spec.origin).resolve().parents[1]


def start_up_problem() -> str | None:
    """What is wrong with the installation, why, and how to fix it; ``None`` when nothing is wrong."""
    shadowed = shadowed_packages()
    if not shadowed:
        return None
    root = Path(__file__).resolve().parents[3]
    lines = [f"Weir's packages do not come from one place; they belong together in {root}:"]
    lines += [f"  {name}  {place}" for name, place in shadowed.items()]
    lines.append("  another folder of that name stands before it on Python's search path")
    lines.append("  fix: run weir from another directory, rename that folder, or take it off PYTHONPATH")
    return "\n".join(lines)
