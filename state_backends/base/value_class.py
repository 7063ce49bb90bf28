"""Values that are made for every step of a checkpoint, or oftener."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[T]) -> type[T]:
    """A dataclass with slots, compared and hashed by its fields, that must not change. The type checker refuses
    assignments. The interpreter does not: a dataclass that is frozen at run time, too, takes five times as long to
    make."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
