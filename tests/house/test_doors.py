"""Rooms have front doors: other rooms and packages import the names that a door lists, and no others."""

from __future__ import annotations

from functools import cache

import pytest

from tests.house.doors import (
    CONVERTED,
    WITHOUT_DOORS,
    doubled_classes,
    modules_by_name,
    nearly_equal_modules,
    past_the_door,
    rooms,
)
from tests.house.project import PACKAGES, python_files, relative

MAX_MODULES = 21
FAMILIES = ("backend", "entries", "errors", "keyed_backend", "timers")  # each backend its own, each package its errors

HOUSE = {
    "engine/__init__.py": "",
    "engine/hall/__init__.py": "from engine.hall.clock import strike as strike, wind\n",
    "engine/hall/clock.py": "def strike(): ...\ndef wind(): ...\n",
    "engine/roof/__init__.py": "",
    "engine/named.py": "def find(): ...\n",
}
PAST = [
    "from engine.hall.clock import strike",
    "from engine.hall import wind",
    "from engine.hall import clock",
    "from engine.hall import (\n    strike,\n    wind,\n)",
    "import engine.hall.clock",
    "import engine.hall",
    "from engine import hall",
    "def f():\n    from engine.hall.clock import wind",
]


@cache
def program() -> dict[str, str]:
    return {relative(path): path.read_text("utf-8") for path in python_files(*PACKAGES, "examples", "benchmarks")}


def test_imports_go_through_the_doors() -> None:
    """No room and no package imports past the door of a room in a converted package."""
    assert "\n".join(map(str, past_the_door(program()))) == ""


@pytest.mark.parametrize("package", CONVERTED)
def test_every_folder_has_a_door(package: str) -> None:
    """Each room says what it lists, what lives there in a few lines, and has about 20 modules at most."""
    found = rooms(program(), package)
    top = package.replace(".", "/") + "/"
    inside = [path for path in program() if path.startswith(top)]
    folders = {f"{package}.{path.removeprefix(top).split('/')[0]}" for path in inside if "/" in path.removeprefix(top)}

    assert sorted(found) == sorted(folders - set(WITHOUT_DOORS))
    for room, names in found.items():
        folder = room.replace(".", "/")
        assert names, f"{room} lists nothing"
        assert sum(path.rpartition("/")[0] == folder for path in inside) - 1 <= MAX_MODULES


def test_a_name_means_one_thing() -> None:
    """No two public classes share a name."""
    assert doubled_classes(_packages()) == []


def test_modules_do_not_differ_by_an_s() -> None:
    """No module's name is another's with an s."""
    assert nearly_equal_modules(_packages()) == []


def test_modules_of_one_name_meet_one_port() -> None:
    """A module's name stands for one file, but where rooms do the same thing each in its way."""
    repeated = {name: places for name, places in modules_by_name(_packages()).items() if len(places) > 1}

    assert {name: places for name, places in repeated.items() if name not in FAMILIES} == {}
    assert repeated.keys() == set(FAMILIES)


def _packages() -> dict[str, str]:
    return {path: source for path, source in program().items() if path.startswith(PACKAGES)}


def test_shared_and_nearly_equal_names_are_found() -> None:
    """A class defined twice and a pair of modules that an s tells apart are named with both places."""
    sources = {
        "engine/hall/clock.py": "class Clock:\n    class Hand: ...\n",
        "operators/clocks.py": "class Clock(int): ...\nclass _Hand: ...\n",
        "operators/hand.py": "class _Hand: ...\n",
        "operators/hands.py": "",
    }

    assert doubled_classes(sources) == ["Clock: engine/hall/clock.py, operators/clocks.py"]
    assert nearly_equal_modules(sources) == [
        "engine/hall/clock.py: differ by an s from operators/clocks.py",
        "operators/hand.py: differ by an s from operators/hands.py",
    ]


@pytest.mark.parametrize("importing", PAST)
def test_an_import_past_a_door_is_found(importing: str) -> None:
    """Every form of import is seen, in the room above as in another package, with file and line."""
    for path in ("engine/roof/tiles.py", "operators/map.py", "engine/named.py"):
        (found,) = past_the_door({**HOUSE, path: f"import os\n\n{importing}\n"}, ["engine"])

        assert (found.path, found.rule) == (path, "door")
        assert found.line >= 3


@pytest.mark.parametrize(
    ("path", "importing"),
    [
        ("engine/roof/tiles.py", "from engine.hall import strike"),
        ("engine/roof/tiles.py", "from engine.named import find"),
        ("engine/hall/bell.py", "from engine.hall.clock import wind"),
        ("operators/map.py", '"""What is\nfrom engine.hall, stays there."""'),
    ],
)
def test_the_door_and_the_room_itself_are_free(path: str, importing: str) -> None:
    """Names that a door lists may be imported, and a room may look inside itself."""
    assert past_the_door({**HOUSE, path: importing}, ["engine"]) == []
