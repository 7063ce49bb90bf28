"""Writes the typed settings of ``Job.run`` from the table: ``python -m tests.runtime.config.typed_settings``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from engine.elements.setting_fields import DURATION, SIZE, SWITCH, TEXT, WHOLE, Kind, Setting
from engine.runtime.config import SETTINGS, JobSettings
from engine.runtime.config.kinds import (
    FACTOR,
    FAILURES,
    INTERVAL,
    LAW,
    RECORD_SIZE,
    RESTART,
    SEED,
    SERVICE,
    STATE_BACKEND,
)

FILE = Path(__file__).parents[3] / "engine/graph/run_settings.py"
MARK = "# From here on written by `python -m tests.runtime.config.typed_settings`.\n"
TYPES = {
    DURATION: "str", INTERVAL: "str", RESTART: "str", TEXT: "str", SIZE: "int | str", SEED: "int | str", WHOLE: "int",
    SWITCH: "bool", STATE_BACKEND: "str | StateBackend", LAW: "str | Law", FACTOR: "float",
    RECORD_SIZE: "int | str | Callable[[Any], int]", FAILURES: "str | Failures | Sequence[Failures]",
}  # fmt: skip
_OF_MAPPINGS = {DURATION: "str", SERVICE: "str | Law | Callable[[Any], str | Law]"}
CLASSES = {
    "cost": ("CostOptions", "Virtual costs: ``cost={...}``."),
    "acking": ("AckingOptions", "How mode ``acking`` tracks records: ``acking={...}``."),
}


def type_of(kind: Kind) -> str:
    """What a type checker accepts. A name has no unit here, so a time is a text."""
    if kind.of is not None:
        return f"Mapping[str, {_OF_MAPPINGS.get(kind.of, 'float')}]"
    return TYPES[kind]


def _field(one: Setting, name: str) -> Iterator[str]:
    yield f"    {name}: {type_of(one.kind)}{' | None' * one.optional}"
    none = f" ``None`` = {one.about.none}." if one.optional else ""
    text = f'"""{one.about.text}{none}"""'
    yield from textwrap.wrap(text, 116, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def written() -> str:
    """The part of the module that the table decides."""
    lines = []
    for owner, (name, text) in CLASSES.items():
        lines += ["", "", f"class {name}(TypedDict, total=False):", f'    """{text}"""', ""]
        for one in SETTINGS.values():
            if one.owner == owner:
                lines += _field(one, one.name.removeprefix(f"{owner}."))
    lines += ["", "", "class Settings(Surroundings, total=False):", '    """Every keyword of ``Job.run``."""', ""]
    for owner, (name, _) in CLASSES.items():
        lines.append(f"    {owner}: {name}")
    for one in SETTINGS.values():
        if not one.owner and (one.name == "preset" or one.name not in JobSettings.__dataclass_fields__):
            lines += _field(one, one.name)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(FILE.read_text("utf-8").partition(MARK)[0] + MARK + written(), "utf-8")
