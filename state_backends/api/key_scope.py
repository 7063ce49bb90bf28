"""The keys of a backend: their type, their key groups, and the current one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from state_backends.base import (
    KeyGroupError,
    KeyGroupRange,
    KeyType,
    StateArgumentError,
    StateSchemaError,
    check_keys,
    check_parallelism,
    foreign_key,
    infer_key_type,
    key_group_function,
)


class KeyScope:
    """Shared by all states of a backend.

    :ivar key: the key of single accesses; ``None``, which is never a key, until one was set
    :ivar key_type: the declared type of all keys; ``None`` = the type in the restored snapshot, else of the first key
    :ivar plain_key_type: the Python type that is enough to check a key; ``None`` for tuples and undeclared keys
    :ivar max_parallelism: the number of key groups of the operator
    :ivar key_group_range: the key groups that the backend owns
    """

    __slots__ = ("_group_of", "key", "key_group_range", "key_type", "max_parallelism", "plain_key_type")

    def __init__(self, key_type: KeyType | None, max_parallelism: int, key_group_range: KeyGroupRange) -> None:
        check_parallelism(1, max_parallelism)
        if key_group_range.last >= max_parallelism:
            raise KeyGroupError(f"key groups {key_group_range} exceed the max parallelism {max_parallelism}.")
        self.key: Any = None
        self.key_type: KeyType | None = None
        self.max_parallelism = max_parallelism
        self.key_group_range = key_group_range
        self._group_of: Callable[[Any], int] | None = None
        self.plain_key_type: type | None = None
        if key_type is not None:
            self.adopt(key_type)

    def set(self, key: Any) -> None:
        """Make it the current key.

        :raises KeyTypeError: when it is not of the declared type
        """
        if type(key) is not self.plain_key_type:
            check_keys((key,), self.key_type or self.adopt(infer_key_type(key)))
        self.key = key

    def require(self) -> Any:
        """The current key.

        :raises StateArgumentError: when none was set
        """
        if self.key is None:
            raise StateArgumentError(
                "keyed state was used without a current key: it belongs to a keyed stream and can be reached "
                "only while a record or timer of some key is processed."
            )
        return self.key

    def any_group_of(self, key: Any) -> int:
        """The key group of a key, which any subtask may own."""
        if self._group_of is None:
            self.adopt(infer_key_type(key))
        assert self._group_of is not None
        return self._group_of(key)

    def group_of(self, key: Any) -> int:
        """The key group of a key; this subtask must own it.

        :raises KeyGroupError: when another subtask owns it
        """
        group = self.any_group_of(key)
        if group not in self.key_group_range:
            raise foreign_key(key, group, self.key_group_range)
        return group

    def check_restored(self, key_type: KeyType | None, max_parallelism: int) -> None:
        """Adopt the key type of a snapshot, or refuse a snapshot whose keys would be in other key groups.

        :raises StateSchemaError: when key type or max parallelism differ
        """
        if key_type is not None:
            if self.key_type is None:
                self.adopt(key_type)
            if key_type != self.key_type:
                raise StateSchemaError(
                    f"the snapshot has keys of type {key_type}, the program declares {self.key_type}: "
                    "the same key would belong to another key group. Declare the key type of the snapshot."
                )
        if max_parallelism != self.max_parallelism:
            raise StateSchemaError(
                f"the snapshot has max parallelism {max_parallelism}, the operator {self.max_parallelism}: "
                "keys would change their key group. Set the max parallelism of the snapshot."
            )

    def adopt(self, key_type: KeyType) -> KeyType:
        """From now on, all keys are of that type."""
        self.key_type = key_type
        self.plain_key_type = None if key_type.name == "TUPLE" else key_type.python_type
        self._group_of = key_group_function(key_type, self.max_parallelism)
        return key_type
