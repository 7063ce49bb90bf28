"""Records: registered classes that are written by their fields, and the reading of objects in an older form.

A record is written as its fields by name. Changes of the fields are compared up front (:meth:`RecordFields.resolve`).
Then old objects can be read: former names become present ones, removed fields are left out, new fields take their
default, and types are widened where the written form is known to be older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from state_backends.base import list_of, optional, row, text, whole
from state_backends.codec.forms import (
    CodeOf,
    Compatibility,
    Convert,
    Form,
    compatibility,
    converter,
    describe,
    fields_of,
    form_from_state,
    form_shape,
    form_to_state,
)

Upgrade = Callable[[dict[str, Any], int], dict[str, Any]]
"""From (fields as written, older version) to the fields of the present version."""


WRITTEN_SCHEMA = optional(row(list_of(text), list_of(row(whole, whole, list_of(row(text, form_shape))))))
"""The shape of what a snapshot says about the values in it: see ``StateSchemas.written``."""


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """The fields of a record type, at some time.

    :ivar code: the number that stands for the class in files
    :ivar version: the version that it was registered with
    :ivar fields: name and form of each field, in order
    """

    code: int
    version: int
    fields: tuple[tuple[str, Form], ...]

    def to_state(self) -> list[Any]:
        return [self.code, self.version, [[name, form_to_state(form)] for name, form in self.fields]]

    @classmethod
    def from_state(cls, state: list[Any]) -> RecordSchema:
        code, version, fields = state
        return cls(code, version, tuple((name, form_from_state(form)) for name, form in fields))


class RecordFields:
    """How a registered record type is written by its fields, and how older forms of it become the present one.

    :ivar cls: the class
    :ivar version: the version that this program writes
    :ivar names: the fields that are written, in order
    :ivar upgrades: whether a function of the program brings older versions to the present one
    """

    def __init__(
        self,
        cls: type,
        version: int,
        names: tuple[str, ...],
        defaults: frozenset[str],
        renames: dict[str, str],
        upgrade: Upgrade | None,
        code_of: CodeOf,
    ) -> None:
        """``defaults``: the fields that may be left out. ``renames``: former to present names. ``upgrade``: from the
        fields as written, and the older version, to the present fields."""
        self.cls = cls
        self.version = version
        self.names = names
        self.upgrades = upgrade is not None
        self._known = frozenset(names)
        self._defaults = defaults
        self._renames = renames
        self._upgrade = upgrade
        self._code_of = code_of
        self._converters: dict[str, Convert] | None = None

    def schema(self, code: int) -> RecordSchema:
        """The fields as they are now. Asked for late: classes that fields refer to may be registered later."""
        return RecordSchema(code, self.version, fields_of(self.cls, self.names, self._code_of))

    def to_state(self, record: Any) -> dict[str, Any]:
        return {name: getattr(record, name) for name in self.names}

    def from_state(self, state: dict[str, Any], version: int) -> Any:
        """The object that was written, in whatever form is compatible with the present one."""
        if version != self.version:
            return self.migrate(state, version)
        if state.keys() != self._known:
            return self.cls(**self._adapted(state))
        return self.cls(**state)

    def migrate(self, state: dict[str, Any], version: int) -> Any:
        """:meth:`from_state` for what is known to be written in another form: types of fields are widened too."""
        if version != self.version and self._upgrade is not None:
            return self.cls(**self._upgrade(state, version))
        if self._converters is None:
            found = {name: converter(form) for name, form in self.schema(0).fields}
            self._converters = {name: convert for name, convert in found.items() if convert is not None}
        fields = self._adapted(state)
        for name, convert in self._converters.items():
            if name in fields:
                fields[name] = convert(fields[name])
        return self.cls(**fields)

    def _adapted(self, state: dict[str, Any]) -> dict[str, Any]:
        renamed = {self._renames.get(name, name): value for name, value in state.items()}
        return {name: value for name, value in renamed.items() if name in self._known}

    def resolve(self, written: RecordSchema) -> tuple[Compatibility, list[str]]:
        """Whether records of the written schema can be read, and the problems if they cannot."""
        present = self.schema(written.code)
        if written.fields == present.fields and (written.version == self.version or not self.upgrades):
            # Another version number alone is no other form; the next snapshot carries the present number.
            same = written.version == self.version
            return (Compatibility.AS_IS if same else Compatibility.AFTER_MIGRATION), []
        if self.upgrades and written.version < self.version:
            return Compatibility.AFTER_MIGRATION, []
        problems = list(self._problems(dict(written.fields), dict(present.fields)))
        return (Compatibility.INCOMPATIBLE if problems else Compatibility.AFTER_MIGRATION), problems

    def _problems(self, written: dict[str, Form], present: dict[str, Form]) -> Iterator[str]:
        before = {self._renames.get(name, name): (name, form) for name, form in written.items()}
        for name, form in present.items():
            if name not in before:
                if name not in self._defaults:
                    yield (
                        f"field {name!r} ({describe(form)}) is new and has no default: old records lack it. Give it a "
                        f"default, or say renames={{'old name': {name!r}}} if it had another name"
                    )
                continue
            old_name, old_form = before[name]
            if compatibility(old_form, form) is Compatibility.INCOMPATIBLE:
                was = f"field {name!r}" if old_name == name else f"field {name!r} (formerly {old_name!r})"
                yield (
                    f"{was} was {describe(old_form)} and is {describe(form)}: old values do not fit. Keep the type, "
                    "widen it (int to float, T to T | None or Any), give the field another name, or raise version= "
                    "and give upgrade="
                )
