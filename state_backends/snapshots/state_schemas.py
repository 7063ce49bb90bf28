"""The form in which the values of one backend are written, and whether a program can read the values of a snapshot.

A snapshot notes which of its states have time-to-live (pairs of last access and content), and the fields of the records
of the program that wrote it. A restore compares both with the running program *before* it reads any value:

* records compatible as they are: they are read unchanged;
* compatible after migration: the values are migrated while they are read (full format), or all at once (a store's
  files), so that the next snapshot is in the present form;
* incompatible: the restore is refused; the error names the change and the fix.

When the program declares a state, before it uses it, its time-to-live is checked: present or absent in both.

The form in files is ``[names of states with time-to-live, record schemas]``, or nothing when both are empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any

from state_backends.base import StateKind, StateMigrationError, StateSchemaError, StateTtlConfig
from state_backends.codec import (
    Compatibility,
    RecordSchema,
    RegisteredType,
    StateCodec,
    TypeRegistry,
    full_name,
    newer_version,
    read_by,
)
from state_backends.snapshots.full_format import DecodedBlock, StateId


class MigratingCodec(StateCodec):
    """Reads the values of an older snapshot, in which some classes have another form; writes the present
    form."""

    def __init__(self, registry: TypeRegistry, migrated: dict[int, RegisteredType]) -> None:
        super().__init__(registry)
        self.migrated = frozenset(one.cls for one in migrated.values())
        self._by_code = migrated

    def restore_object(self, code: int, version: int, state: Any) -> Any:
        """The object that was written as ``state``."""
        registered = self._by_code.get(code)
        if registered is None:
            return super().restore_object(code, version, state)
        assert registered.fields is not None
        return read_by(registered.fields.migrate, registered, version, state)


class StateSchemas:
    """The form of the values of one backend."""

    def __init__(self, codec: StateCodec) -> None:
        self._codec = codec
        self._has_ttl: dict[str, bool] = {}
        self._restored: set[str] = set()

    def declare(self, name: str, ttl: StateTtlConfig | None) -> None:
        """The program declares a state.

        :raises StateSchemaError: when it has time-to-live and the known state has not, or the other way round
        """
        has_ttl = ttl is not None
        known = self._has_ttl.setdefault(name, has_ttl)
        if known is not has_ttl:
            before = "restored" if name in self._restored else "declared"
            was, now = ("without", "with") if has_ttl else ("with", "without")
            raise StateSchemaError(
                f"state {name!r} was {before} {was} time-to-live and is declared {now} it. What is stored "
                f"differs: the time of the last access stands beside each value. Declare it {was} ttl= (its duration "
                "may change), or give the new state another name."
            )

    def restore(self, written: Any, states: Iterable[str], where: str) -> StateCodec:
        """Compare the schemas of a snapshot with the running program.

        :param written: the result of :meth:`written` in the snapshot
        :param states: the names of the states in the snapshot, without timers
        :param where: the name of the snapshot in errors
        :return: the codec for the values of the snapshot: the backend's own codec when no value needs migration
        :raises StateMigrationError: when records are not compatible; then no state was changed
        :raises StateSchemaError: when a newer program has written the snapshot, or a state was declared with
            time-to-live and is restored without, or the other way round
        """
        with_ttl, records = ([], []) if written is None else written
        names = sorted({*states, *with_ttl})
        for name in names:
            self._restore_ttl(name, name in with_ttl)
        migrated = self._resolve([RecordSchema.from_state(record) for record in records], names, where)
        return MigratingCodec(self._codec.registry, migrated) if migrated else self._codec

    def written(self) -> Any:
        """The schemas for a snapshot taken now; ``None`` when there are none."""
        with_ttl = sorted(name for name, has_ttl in self._has_ttl.items() if has_ttl)
        records = [fields.schema(code).to_state() for code, fields in sorted(self._codec.registry.records.items())]
        return [with_ttl, records] if with_ttl or records else None

    def _restore_ttl(self, name: str, has_ttl: bool) -> None:
        known = self._has_ttl.setdefault(name, has_ttl)
        if known is not has_ttl:
            was, now = ("with", "without") if has_ttl else ("without", "with")
            raise StateSchemaError(
                f"the snapshot has state {name!r} {was} time-to-live, the program has it {now}. What is stored "
                f"differs: declare it {was} ttl=, or give the new state another name."
            )
        self._restored.add(name)

    def _resolve(self, written: list[RecordSchema], states: list[str], where: str) -> dict[int, RegisteredType]:
        migrated: dict[int, RegisteredType] = {}
        found: list[str] = []
        for schema in written:
            registered = self._codec.registry.for_code(schema.code)
            if registered is None or registered.fields is None:
                # The snapshot may have no value of it. If it has one, reading it fails, or a function reads it.
                continue
            if schema.version > registered.version:
                raise newer_version(registered, schema.version)
            compatible, problems = registered.fields.resolve(schema)
            found += [f"{full_name(registered.cls)} (type code {schema.code}): {problem}." for problem in problems]
            if compatible is Compatibility.AFTER_MIGRATION:
                migrated[schema.code] = registered
        if found:
            listed = "".join(f"\n  {problem}" for problem in found)
            raise StateMigrationError(
                f"{where}: records in its states ({', '.join(map(repr, states)) or 'none'}) cannot be brought to the "
                f"form that this program has; nothing was restored.{listed}"
            )
        return migrated


def merge_written(left: Any, right: Any) -> Any:
    """The schemas of two snapshots of one checkpoint, merged.

    :raises StateSchemaError: when they describe a record differently: different programs wrote them
    """
    if left is None or right is None or left == right:
        return right if left is None else left
    records = {record[0]: record for record in left[1]}
    for record in right[1]:
        if records.setdefault(record[0], record) != record:
            raise StateSchemaError(
                f"two parts of one snapshot have records of type code {record[0]} in different forms: they were not "
                "written by one program. Restore from one checkpoint."
            )
    return [sorted({*left[0], *right[0]}), [records[code] for code in sorted(records)]]


def names_without_timers(states: Iterable[StateId]) -> list[str]:
    """The names of the given states, without timers."""
    return [state.name for state in states if state.kind != StateKind.TIMERS.value]


def checked_blocks(blocks: Iterable[DecodedBlock], codec: StateCodec) -> Iterator[DecodedBlock]:
    """The same blocks; refuses map keys and namespaces that a migration would change.

    :param codec: the result of :meth:`StateSchemas.restore`
    :raises StateMigrationError: names state and key
    """
    for block in blocks:
        if isinstance(codec, MigratingCodec):
            name = block.state.name
            for namespace in block.namespaces or ():
                check_key(namespace, f"a namespace of state {name!r}", codec.migrated)
            for map_key in chain.from_iterable(block.values if block.state.kind == StateKind.MAP.value else ()):
                check_key(map_key, f"a map key of state {name!r}", codec.migrated)
        yield block


def check_key(key: Any, what: str, migrated: Collection[type]) -> None:
    """Refuse a key that holds a record of another form.

    :raises StateMigrationError: naming it
    """
    if type(key) in migrated:
        raise StateMigrationError(
            f"{what} is a {full_name(type(key))}, whose fields have changed. Keys never change: two of them might "
            "become one. Register the changed class under a new type code and keep the old one, or give the state "
            "another name."
        )
    if type(key) is tuple:
        for part in key:
            check_key(part, what, migrated)
