"""The classes, beyond the plain ones, that state may contain, with their codes and versions.

A class is registered with a small number and a version. Files have the number instead of the name, so
you may rename a class. With the version, state written by an older program can be brought to the
present form. Built in are ``date``, ``datetime``, ``timedelta``, ``Decimal`` and ``time``.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from collections.abc import Callable, Mapping
from typing import Any

import msgpack

from state_backends.base import StateArgumentError, StateMigrationError, StateSchemaError
from state_backends.codec.record_schema import RecordFields, Upgrade

MIN_USER_CODE = 32
"""The smallest code a user may register; smaller ones belong to this project."""

MAX_USER_CODE = 127
"""The largest code msgpack has for applications."""

_MAX_VERSION = 0xFFFF

ToState = Callable[[Any], Any]
FromState = Callable[[Any, int], Any]


def type_mark(code: int, version: int) -> msgpack.ExtType:
    """What stands before the state of a registered type in an encoded value."""
    return msgpack.ExtType(code, version.to_bytes(2, "big"))


class RegisteredType:
    """One class that may stand in state.

    :ivar code: the number that stands for the class in files
    :ivar cls: the class; only exactly this class, never a subclass, is written under the code
    :ivar to_state: from an object to a plain value
    :ivar from_state: from (plain value, version it was written with) back to an object
    :ivar version: the version that this program writes
    :ivar fields: the fields that it is written by, when it is a record
    """

    __slots__ = ("cls", "code", "fields", "from_state", "mark", "to_state", "version")

    def __init__(
        self,
        code: int,
        cls: type,
        to_state: ToState,
        from_state: FromState,
        version: int,
        fields: RecordFields | None = None,
    ) -> None:
        self.fields = fields
        self.code = code
        self.cls = cls
        self.to_state = to_state
        self.from_state = from_state
        self.version = version
        self.mark = type_mark(code, version)


class TypeRegistry:
    """Registered types by class and by code; starts with the built-in ones."""

    def __init__(self) -> None:
        self._by_class: dict[type, RegisteredType] = {}
        self._by_code: dict[int, RegisteredType] = {}
        self.records: dict[int, RecordFields] = {}
        """By code: the fields of all registered records."""
        for code, cls, to_state, from_state in _BUILT_IN:
            self._add(RegisteredType(code, cls, to_state, from_state, version=1))

    def register_type(
        self,
        code: int,
        cls: type,
        to_state: ToState,
        from_state: FromState,
        version: int = 1,
        fields: RecordFields | None = None,
    ) -> None:
        """Let objects of exactly ``cls`` stand in state.

        :param code: 32 to 127, never changed and never reused for another class
        :param to_state: from an object to a plain value (lists, dicts, tuples, scalars, registered types)
        :param from_state: from (plain value, version) to an object; gets every version ever written
        :param version: 1 to 65535, raised whenever the form that ``to_state`` returns changes
        :param fields: the fields that it is written by, when it is a record
        :raises StateArgumentError: on a code or version out of range, or taken by another class
        """
        if not MIN_USER_CODE <= code <= MAX_USER_CODE:
            raise StateArgumentError(
                f"type code {code} of {cls.__qualname__} is not within {MIN_USER_CODE} to {MAX_USER_CODE}."
            )
        if not 1 <= version <= _MAX_VERSION:
            raise StateArgumentError(f"version {version} of {cls.__qualname__} is not within 1 to {_MAX_VERSION}.")
        taken = self._by_code.get(code)
        if taken is not None and full_name(taken.cls) != full_name(cls):
            raise StateArgumentError(
                f"type code {code} already stands for {full_name(taken.cls)}: give {full_name(cls)} another one."
            )
        known = self._by_class.get(cls)
        if known is not None and known.code != code:
            raise StateArgumentError(
                f"{full_name(cls)} is already registered under code {known.code}: files written so far use it."
            )
        self._add(RegisteredType(code, cls, to_state, from_state, version, fields))

    def _add(self, registered: RegisteredType) -> None:
        # A module that is loaded again registers a new class object under the same name: the newer wins.
        self._by_class[registered.cls] = registered
        self._by_code[registered.code] = registered
        self.records.pop(registered.code, None)
        if registered.fields is not None:
            self.records[registered.code] = registered.fields

    def for_class(self, cls: type) -> RegisteredType | None:
        """The registration of exactly this class, if any."""
        return self._by_class.get(cls)

    def for_code(self, code: int) -> RegisteredType | None:
        return self._by_code.get(code)

    def of_users(self) -> list[RegisteredType]:
        """The registrations that are not built in, by code."""
        return [one for code, one in sorted(self._by_code.items()) if code >= MIN_USER_CODE]

    def check_code(self, code: int) -> None:
        """Refuse a code that stands for no class, with :class:`StateSchemaError`."""
        if code not in self._by_code:
            raise unregistered(code)

    def code_of(self, cls: type) -> int | None:
        """The code of exactly this class, if it is registered."""
        registered = self._by_class.get(cls)
        return None if registered is None else registered.code

    def restore(self, code: int, version: int, state: Any) -> Any:
        """The object that was written as ``state`` under a code and version.

        :raises StateSchemaError: when the code is unknown or the version newer than registered
        :raises StateMigrationError: when ``from_state`` fails
        """
        registered = self._by_code.get(code)
        if registered is None:
            raise unregistered(code)
        if version > registered.version:
            raise newer_version(registered, version)
        return read_by(registered.from_state, registered, version, state)


def read_by(from_state: FromState, registered: RegisteredType, version: int, state: Any) -> Any:
    """The object that a function makes of what was written; :class:`StateMigrationError` when it fails."""
    try:
        return from_state(state, version)
    except Exception as problem:
        raise StateMigrationError(
            f"from_state of {full_name(registered.cls)} could not read version {version} of it: {problem!r}. It must "
            "accept every version that was ever written."
        ) from problem


def unregistered(code: int) -> StateSchemaError:
    """The error for a value whose type this program does not know."""
    return StateSchemaError(
        f"the state holds a value of type code {code}, which this program has not registered. "
        "Import the module that calls register_type for it before restoring."
    )


def newer_version(registered: RegisteredType, version: int) -> StateSchemaError:
    return StateSchemaError(
        f"the state holds version {version} of {full_name(registered.cls)} (type code {registered.code}), but this "
        f"program knows versions up to {registered.version}. Run the newer program, or an older checkpoint."
    )


def full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _timezone_to_state(zone: datetime.tzinfo | None) -> list[Any] | None:
    if zone is None:
        return None
    if type(zone) is not datetime.timezone:
        raise TypeError(
            f"time zone {zone!r} is not a fixed offset: its rules may differ where the state is read. "
            "Convert with astimezone(datetime.timezone.utc) first"
        )
    offset = zone.utcoffset(None)
    name = zone.tzname(None)
    default_name = datetime.timezone(offset).tzname(None)
    return [_timedelta_to_state(offset), None if name == default_name else name]


def _timezone_from_state(state: list[Any] | None) -> datetime.timezone | None:
    if state is None:
        return None
    parts, name = state
    offset = datetime.timedelta(*parts)
    return datetime.timezone(offset) if name is None else datetime.timezone(offset, name)


def _datetime_to_state(moment: datetime.datetime) -> list[Any]:
    fields = [moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second]
    return [*fields, moment.microsecond, moment.fold, _timezone_to_state(moment.tzinfo)]


def _datetime_from_state(state: list[Any], version: int) -> datetime.datetime:
    *fields, fold, zone = state
    return datetime.datetime(*fields).replace(tzinfo=_timezone_from_state(zone), fold=fold)


def _time_to_state(time: datetime.time) -> list[Any]:
    fields = [time.hour, time.minute, time.second, time.microsecond]
    return [*fields, time.fold, _timezone_to_state(time.tzinfo)]


def _time_from_state(state: list[Any], version: int) -> datetime.time:
    *fields, fold, zone = state
    return datetime.time(*fields).replace(tzinfo=_timezone_from_state(zone), fold=fold)


def _timedelta_to_state(span: datetime.timedelta) -> list[int]:
    return [span.days, span.seconds, span.microseconds]


_BUILT_IN: tuple[tuple[int, type, ToState, FromState], ...] = (
    (1, datetime.date, datetime.date.toordinal, lambda state, version: datetime.date.fromordinal(state)),
    (2, datetime.datetime, _datetime_to_state, _datetime_from_state),
    (3, datetime.timedelta, _timedelta_to_state, lambda state, version: datetime.timedelta(*state)),
    (4, decimal.Decimal, str, lambda state, version: decimal.Decimal(state)),
    (5, datetime.time, _time_to_state, _time_from_state),
)

default_registry = TypeRegistry()
"""The registry that :func:`register_type` fills and that every codec uses unless given another."""


def register_type(code: int, cls: type, to_state: ToState, from_state: FromState, version: int = 1) -> None:
    """:meth:`TypeRegistry.register_type` on the default registry."""
    default_registry.register_type(code, cls, to_state, from_state, version)


def register_record_type(
    code: int,
    cls: type,
    version: int = 1,
    upgrade: Upgrade | None = None,
    registry: TypeRegistry | None = None,
    *,
    renames: Mapping[str, str] | None = None,
) -> None:
    """Register a dataclass or NamedTuple by its fields.

    Fields may be added (with a default), dropped, renamed (with ``renames``) and widened: old state follows. Whether
    it can is checked when a snapshot is restored (:mod:`state_backends.codec.forms`). Everything else is for
    ``upgrade``, with a raised ``version``.

    :param upgrade: from (fields as written, older version) to the fields of the present version
    :param renames: from former names of fields to present ones
    :raises StateArgumentError: when the class has no fields to go by, a rename does not lead to one of them, or as
        :func:`register_type` does
    """
    if dataclasses.is_dataclass(cls):
        fields = [field for field in dataclasses.fields(cls) if field.init]
        names = tuple(field.name for field in fields)
        missing = dataclasses.MISSING
        optional = [one.name for one in fields if one.default is not missing or one.default_factory is not missing]
    else:
        names = tuple(getattr(cls, "_fields", ()))
        optional = list(getattr(cls, "_field_defaults", ()))
    if not names:
        raise StateArgumentError(
            f"{full_name(cls)} is neither a dataclass nor a NamedTuple with fields: use register_type."
        )
    renames = dict(renames or {})
    _check_renames(cls, names, renames)
    target = default_registry if registry is None else registry
    record = RecordFields(cls, version, names, frozenset(optional), renames, upgrade, target.code_of)
    target.register_type(code, cls, record.to_state, record.from_state, version, record)


def _check_renames(cls: type, names: tuple[str, ...], renames: dict[str, str]) -> None:
    for old, new in renames.items():
        if new not in names or old in names:
            why = f"{new!r} is no field of it" if new not in names else f"{old!r} is still a field of it"
            raise StateArgumentError(
                f"renames of {full_name(cls)} says that field {old!r} became {new!r}, but {why}. It leads from names "
                "that are gone to present ones."
            )
