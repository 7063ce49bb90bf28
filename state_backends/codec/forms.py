"""The forms of the fields of a record, as written in snapshots, and the changes after which old state can be read.

A *form* stands for a type annotation. It is a text (``int``, ``any``) or a tuple whose first element is its kind:
``("list", element)``, ``("tuple", one, two)``, ``("tuple...", element)``, ``("dict", key, value)``,
``("union", one, two)`` with ``none`` for ``None``, ``("record", code)``, and ``("other", name)`` for any annotation
that is none of these. No form has the name of a registered class, so you may rename such a class.

Changes (TypeSerializerSchemaCompatibility in Flink; all other changes are incompatible):

| from                     | to                                                | old state is            |
|--------------------------|---------------------------------------------------|-------------------------|
| any form                 | the same; ``Any``; a union that has it            | compatible as it is     |
| ``bool``, ``int``        | ``float``; ``bool`` also ``int``                  | compatible, migrated    |
| ``T``                    | ``U | None`` when ``T`` to ``U`` is               | as ``T`` to ``U``       |
| ``list[T]`` and the like | ``list[U]``, ``tuple[U, ...]``, ``dict[K, U]``    | as ``T`` to ``U``       |
| ``dict[K, V]``           | another key type                                  | incompatible: keys stay |
| a union                  | whatever each of its alternatives may become      | as the worst of them    |

A migrated ``int`` beyond 2^53 loses its last digits, as ``float()`` does.
"""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from state_backends.base import Shape, list_of, row, tagged, text, whole

Form = str | tuple[Any, ...]
"""The form of a field."""

CodeOf = Callable[[type], int | None]
"""The type code of a registered class; ``None`` for others."""

ANY, NONE = "any", "none"
_SCALARS: dict[type, str] = {int: "int", float: "float", str: "str", bytes: "bytes", bool: "bool", type(None): NONE}
_WIDER = {("bool", "int"), ("bool", "float"), ("int", "float")}
_CONTAINERS: dict[Any, str] = {list: "list", dict: "dict", tuple: "tuple..."}
_ARGUMENTS = {"list": 1, "dict": 2, "tuple...": 1}


class Compatibility(enum.IntEnum):
    """Whether old state can be read; a larger value is worse."""

    AS_IS = 0
    AFTER_MIGRATION = 1
    INCOMPATIBLE = 2


def form_of(annotation: Any, code_of: CodeOf) -> Form:
    """The form of a type annotation."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return form_of(typing.get_args(annotation)[0], code_of)
    if origin is typing.Union or origin is types.UnionType:
        return _union([form_of(one, code_of) for one in typing.get_args(annotation)])
    if origin is tuple:
        return _tuple_form(typing.get_args(annotation), code_of)
    container = _CONTAINERS.get(annotation if origin is None else origin)
    if container is not None:
        arguments = typing.get_args(annotation) or (Any,) * _ARGUMENTS[container]
        return (container, *(form_of(one, code_of) for one in arguments))
    return _simple_form(annotation, code_of)


def _simple_form(annotation: Any, code_of: CodeOf) -> Form:
    if annotation is Any or annotation is object:
        return ANY
    if annotation is None:
        return NONE
    if not isinstance(annotation, type):
        return ("other", annotation if isinstance(annotation, str) else str(annotation))
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    code = code_of(annotation)
    return ("other", annotation.__qualname__) if code is None else ("record", code)


def _tuple_form(arguments: tuple[Any, ...], code_of: CodeOf) -> Form:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return ("tuple...", form_of(arguments[0], code_of))
    return ("tuple", *(form_of(one, code_of) for one in arguments))


def _union(alternatives: list[Form]) -> Form:
    # An order of its own: ``int | str`` and ``str | int`` are one type.
    distinct = sorted(dict.fromkeys(alternatives), key=repr)
    if ANY in distinct:
        return ANY
    return distinct[0] if len(distinct) == 1 else ("union", *distinct)


def fields_of(cls: type, names: tuple[str, ...], code_of: CodeOf) -> tuple[tuple[str, Form], ...]:
    """Name and form of each field of a dataclass or NamedTuple; a field without annotation may hold anything."""
    return tuple((name, form_of(annotation, code_of)) for name, annotation in _annotations(cls, names))


def _annotations(cls: type, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    try:
        hints = typing.get_type_hints(cls)
        return [(name, hints.get(name, Any)) for name in names]
    except Exception:
        # Some name is not to be found, such as that of a class inside a function: the other fields need not suffer.
        pass
    declared: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        declared.update(inspect.get_annotations(base))
    return [(name, _evaluated(declared.get(name, Any), cls)) for name in names]


def _evaluated(annotation: Any, cls: type) -> Any:
    if isinstance(annotation, typing.ForwardRef):  # what a NamedTuple makes of text
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return annotation
    alone = type("alone", (), {"__annotations__": {"field": annotation}, "__module__": cls.__module__})
    try:
        return typing.get_type_hints(alone)["field"]
    except Exception:
        return annotation


def compatibility(old: Form, new: Form) -> Compatibility:
    """What becomes of a field of form ``old`` that is of form ``new`` now."""
    if new in (old, ANY):
        return Compatibility.AS_IS
    if (old, new) in _WIDER:
        return Compatibility.AFTER_MIGRATION
    if old[0] == "union":
        return max(compatibility(one, new) for one in old[1:])
    if new[0] == "union":
        return _into_union(old, new)
    if isinstance(old, str) or isinstance(new, str):
        return Compatibility.INCOMPATIBLE
    return _of_containers(old, new)


def _into_union(old: Form, new: Form) -> Compatibility:
    found = [compatibility(old, one) for one in new[1:]]
    if Compatibility.AS_IS in found:
        return Compatibility.AS_IS
    # With more than one alternative, it could not be decided which one a value should become.
    substantial = [one for one in new[1:] if one != NONE]
    return min(found) if len(substantial) == 1 else Compatibility.INCOMPATIBLE


def _of_containers(old: tuple[Any, ...], new: tuple[Any, ...]) -> Compatibility:
    match old[0], new[0]:
        case ("list", "list") | ("tuple...", "tuple..."):
            return compatibility(old[1], new[1])
        case ("tuple", "tuple") if len(old) == len(new):
            found = [compatibility(one, other) for one, other in zip(old[1:], new[1:], strict=True)]
            return max(found, default=Compatibility.AS_IS)
        case ("tuple", "tuple..."):
            return max((compatibility(one, new[1]) for one in old[1:]), default=Compatibility.AS_IS)
        case ("dict", "dict") if old[1] == new[1]:
            return compatibility(old[2], new[2])
        case _:
            return Compatibility.INCOMPATIBLE


Convert = Callable[[Any], Any]


def converter(form: Form) -> Convert | None:
    """From a value of any form that may become this one to a value of this one; ``None`` = every value stays."""
    if form == "float":
        return lambda value: float(value) if type(value) in (int, bool) else value
    if form == "int":
        return lambda value: int(value) if type(value) is bool else value
    return None if isinstance(form, str) else _container_converter(form)


def _container_converter(form: tuple[Any, ...]) -> Convert | None:
    match form:
        case ("union", *alternatives):
            substantial = [one for one in alternatives if one != NONE]
            # A union of several takes only what is one of them already.
            return converter(substantial[0]) if len(substantial) == 1 else None
        case ("list", element):
            return _each(list, element)
        case ("tuple...", element):
            return _each(tuple, element)
        case ("tuple", *elements):
            return _by_position(elements)
        case ("dict", _, element):
            return _dict_values(element)
        case _:
            return None


def _each(kind: type[list[Any]] | type[tuple[Any, ...]], element: Form) -> Convert | None:
    convert = converter(element)
    if convert is None:
        return None
    return lambda value: kind(map(convert, value)) if type(value) is kind else value


def _by_position(elements: list[Form]) -> Convert | None:
    converts = [converter(element) or _unchanged for element in elements]
    if all(convert is _unchanged for convert in converts):
        return None

    def convert_tuple(value: Any) -> Any:
        if type(value) is not tuple or len(value) != len(converts):
            return value
        return tuple(convert(one) for convert, one in zip(converts, value, strict=True))

    return convert_tuple


def _dict_values(element: Form) -> Convert | None:
    convert = converter(element)
    if convert is None:
        return None
    return lambda value: {key: convert(one) for key, one in value.items()} if type(value) is dict else value


def _unchanged(value: Any) -> Any:
    return value


def describe(form: Form) -> str:
    """A form as one would write the annotation."""
    if isinstance(form, str):
        return {ANY: "Any", NONE: "None"}.get(form, form)
    match form:
        case ("union", *alternatives):
            shown = [describe(one) for one in alternatives if one != NONE]
            return " | ".join([*shown, "None"] if NONE in alternatives else shown)
        case ("tuple...", element):
            return f"tuple[{describe(element)}, ...]"
        case ("record", code):
            return f"record of type code {code}"
        case ("other", name):
            return str(name)
        case (container, *arguments):
            return f"{container}[{', '.join(map(describe, arguments))}]"
    raise AssertionError(f"no form: {form!r}")


def form_to_state(form: Form) -> Any:
    return list(map(form_to_state, form)) if isinstance(form, tuple) else form


def form_from_state(state: Any) -> Any:
    return tuple(map(form_from_state, state)) if isinstance(state, list) else state


def form_shape(value: Any) -> None:
    """The shape of the plain form of a form."""
    if isinstance(value, list):
        parts: Shape = {"record": row(whole), "other": row(text)}.get(str(value[:1] and value[0]), list_of(form_shape))
        tagged({})(value)
        parts(value[1:])
    else:
        text(value)
