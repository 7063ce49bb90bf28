"""The front doors of rooms: other rooms and packages may import only the names that a room's ``__init__`` lists.

A package whose rooms have doors is in :data:`CONVERTED`. Its rooms are its folders, and modules that stand beside them
(these are their own door). Tests may look inside the rooms.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from textwrap import dedent

from tests.house.determinism import Finding

CONVERTED = (
    "state_backends", "operators", "operators.files", "operators.log", "operators.table", "engine.checkpoint",
    "engine.runtime", "engine.explore", "engine.cli",
)  # fmt: skip
WITHOUT_DOORS = ("operators.files", "operators.log", "operators.table")  # they are rooms themselves
VERBS = "engine/cli/verbs/"  # named as users type them

# A statement may go on within parentheses. Lines of prose that begin with "from" are no statements and do not parse.
_STATEMENT = re.compile(r"^[ \t]*(?:from|import)[ \t](?:[^\n(]*\([^)]*\)|[^\n]*)", re.MULTILINE)


def _imports(source: str, packages: Iterable[str]) -> Iterator[tuple[int, ast.ImportFrom | ast.Import]]:
    """The imports from these packages with their lines, those inside functions too."""
    names = tuple(packages)
    for found in _STATEMENT.finditer(source):
        if not any(name in found[0] for name in names):
            continue
        try:
            statement = ast.parse(dedent(found[0])).body[0]
        except SyntaxError:
            continue
        if isinstance(statement, ast.ImportFrom | ast.Import):
            yield source.count("\n", 0, found.start()) + 1, statement


def rooms(sources: Mapping[str, str], package: str) -> dict[str, frozenset[str]]:
    """Each folder of a package, dotted, and the names that its door lists."""
    found = {}
    folder = package.replace(".", "/")
    for path, source in sources.items():
        above, _, name = path.removesuffix("/__init__.py").rpartition("/")
        if above == folder and path.endswith("/__init__.py") and f"{package}.{name}" not in WITHOUT_DOORS:
            found[f"{package}.{name}"] = frozenset(_listed(ast.parse(source)))
    return found


def _listed(door: ast.Module) -> Iterator[str]:
    """The names that a door lets through, written ``A as A`` as type checkers ask, and those that it defines."""
    for node in door.body:
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if alias.asname == alias.name)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])


def past_the_door(sources: Mapping[str, str], packages: Iterable[str] = CONVERTED) -> list[Finding]:
    """Every import of something that the door of its room does not list, from outside the room."""
    doors = {room: names for package in packages for room, names in rooms(sources, package).items()}
    found = []
    for path, source in sources.items():
        here = path.removesuffix(".py").replace("/", ".") + "."
        for line, statement in _imports(source, packages):
            for module, name in _imported(statement):
                what = f"{module}.{name}".rstrip(".")
                room = next((room for room in doors if f"{what}.".startswith(f"{room}.")), None)
                if room is None or here.startswith(f"{room}.") or (module == room and name in doors[room]):
                    continue
                found.append(Finding(path, line, "door", f"{what} is not what {room} lists in its __init__"))
    return found


def _imported(statement: ast.ImportFrom | ast.Import) -> Iterator[tuple[str, str]]:
    """(module, name) of each; the name is empty where the module itself is imported."""
    if isinstance(statement, ast.Import):
        yield from ((alias.name, "") for alias in statement.names)
    elif statement.module:
        yield from ((statement.module, alias.name) for alias in statement.names)


def doubled_classes(sources: Mapping[str, str]) -> list[str]:
    """Names that more than one public class has."""
    places = defaultdict(list)
    for path, source in sources.items():
        for found in re.finditer(r"^class ([A-Za-z]\w*)", source, re.MULTILINE):
            places[found[1]].append(path)
    return [f"{name}: {', '.join(paths)}" for name, paths in sorted(places.items()) if len(paths) > 1]


def modules_by_name(paths: Iterable[str]) -> dict[str, list[str]]:
    """The places of each module's name; verbs, which are named as users type them, apart."""
    places = defaultdict(list)
    for path in paths:
        name = path.rpartition("/")[2].removesuffix(".py")
        if name != "__init__" and not path.startswith(VERBS):
            places[name].append(path)
    return places


def nearly_equal_modules(paths: Iterable[str]) -> list[str]:
    """Pairs of modules that differ by an s only."""
    places = modules_by_name(paths)
    return [
        f"{', '.join(places[name])}: differ by an s from {', '.join(places[name + 's'])}"
        for name in sorted(places)
        if name + "s" in places
    ]
