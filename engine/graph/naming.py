"""Names and uids: the name of an operator in messages, and the uid under which its state is stored.

Rules:

* A name that the user gives is taken as it is. All others are made from the kind of the operator, numbered
  in the order of definition: ``map``, ``map-2``, ``map-3``; a name that a user gave is skipped.
* A uid that the user gives is taken as it is. All others are made from the name, with every character that
  does not belong in a file name replaced, and numbered the same way. Renaming or reordering operators
  therefore changes where their state is looked for, unless they have a uid (Flink gives the same advice).
* Given names, and given uids, must be unique; made ones are by construction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

UID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LABEL_LIMIT = 120
"""Longest name or uid, in characters: uids become parts of file names, which end at 255."""

_NOT_IN_A_UID = re.compile(r"[^A-Za-z0-9._-]+")
_RESERVED = re.compile(r"[\[\]]|->")


class Declared(Protocol):
    """The facts about an operator that naming needs."""

    @property
    def id(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def declared_name(self) -> str | None: ...
    @property
    def declared_uid(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """The final name and uid of one operator, and the uid it would have had if none had been given."""

    name: str
    uid: str
    generated_uid: str


def resolve_labels(nodes: Sequence[Declared]) -> dict[int, NodeLabel]:
    """Name and uid of every operator by id, all the made ones different from each other and from the given ones."""
    given_names = {node.declared_name for node in nodes if node.declared_name is not None}
    names = [node.declared_name if node.declared_name is not None else _free(node.kind, given_names) for node in nodes]
    given_uids = {node.declared_uid for node in nodes if node.declared_uid is not None}
    uids = [
        node.declared_uid if node.declared_uid is not None else _free(uid_stem(name), given_uids)
        for node, name in zip(nodes, names, strict=True)
    ]
    taken: set[str] = set()
    generated = [_free(uid_stem(name), taken) for name in names]
    return {node.id: NodeLabel(*label) for node, *label in zip(nodes, names, uids, generated, strict=True)}


def _free(stem: str, taken: set[str]) -> str:
    """``stem``, or the first of ``stem-2``, ``stem-3``, … that is free; it is taken from now on."""
    candidate, number = stem, 1
    while candidate in taken:
        number += 1
        candidate = f"{stem}-{number}"
    taken.add(candidate)
    return candidate


def uid_stem(name: str) -> str:
    """``name`` with only the characters that a uid may have."""
    return _NOT_IN_A_UID.sub("-", name)[:LABEL_LIMIT].strip("-._") or "operator"


def name_problem(name: object) -> str | None:
    """The problem of a given name, and how to fix it; ``None`` when there is none."""
    if not isinstance(name, str):
        return f'name must be a str, not {type(name).__name__}; give name="…"'
    if not name.strip() or not name.isprintable():
        return f"name {name!r} is blank or has characters that cannot be printed; give it a readable name"
    if _RESERVED.search(name):
        return (
            f"name {name!r} contains '[', ']' or '->', which mark subtasks and chains ('map -> count[1]'); "
            "leave them out"
        )
    if len(name) > LABEL_LIMIT:
        return f"name {name[:40] + '…'!r} has {len(name)} characters; keep it to {LABEL_LIMIT}"
    return None


def uid_problem(uid: object) -> str | None:
    """The problem of a given uid, and how to fix it; ``None`` when there is none."""
    if not isinstance(uid, str):
        return f'uid must be a str, not {type(uid).__name__}; give uid="…"'
    if not UID_PATTERN.fullmatch(uid):
        return (
            f"uid {uid!r} cannot stand in a file name; use letters, digits, '.', '_' and '-' only, "
            f"for instance uid={uid_stem(uid)!r}"
        )
    if len(uid) > LABEL_LIMIT:
        return f"uid {uid[:40] + '…'!r} has {len(uid)} characters; keep it to {LABEL_LIMIT}"
    return None


def duplicates(labels: Iterable[str | None]) -> Iterator[tuple[str, int]]:
    """Every label that was given more than once, in order of first appearance, with how often."""
    counts: dict[str, int] = {}
    for label in labels:
        if label is not None:
            counts[label] = counts.get(label, 0) + 1
    return ((label, count) for label, count in counts.items() if count > 1)
