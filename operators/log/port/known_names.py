"""The transactional ids that a log remembers, and for how long.

A name is the result of all its changes so far. After a long time without use the log forgets a name and the outcomes of
its transactions. Later names get epochs above those of all forgotten ones. So the log detects a zombie, or any other
producer that still holds a forgotten name.
"""

from __future__ import annotations

from operators.log.port.transaction_log import OPEN, PREPARED, UNKNOWN, Producer, TransactionDescription
from operators.log.port.transaction_names import BEGUN, ENDED, FORGOTTEN, IS_PREPARED, REGISTERED, Change, Name

DEFAULT_ID_EXPIRATION_NS = 7 * 24 * 3600 * 1_000_000_000
"""How long an unused transactional id is remembered (Kafka: ``transactional.id.expiration.ms``, 7 days)."""

NEVER_NS = 1 << 63


class KnownNames:
    """See the module. ``id_expiration_ns``: how long an unused name is remembered, ``None`` = for ever."""

    def __init__(self, id_expiration_ns: int | None) -> None:
        self._id_expiration_ns = id_expiration_ns
        self._names: dict[str, Name] = {}
        self._now_ns = 0
        self._first_epoch = 0
        """The epoch of new names: above those of all forgotten ones, because one of them, or a zombie, may return."""
        self._next_expiry_ns = NEVER_NS
        """Before this time no transaction times out and no name is forgotten."""

    def _apply(self, change: Change) -> None:
        """Apply a change; a name is the result of all its changes so far."""
        kind, transactional_id, epoch, *rest = change
        if kind == REGISTERED:
            name = self._names.get(transactional_id)
            if name is None:
                name = self._names[transactional_id] = Name(epoch, rest[0], used_ns=self._now_ns)
            else:
                if name.ended.last_epoch == name.epoch - 1:
                    # Otherwise names that every restart takes over but never uses would live for ever.
                    name.used_ns = self._now_ns
                name.epoch, name.timeout_ns = epoch, rest[0]
            self._next_expiry_ns = min(self._next_expiry_ns, self._due_ns(name))
            return
        if kind == FORGOTTEN:
            self._names.pop(transactional_id, None)
            self._first_epoch = max(self._first_epoch, epoch + 1)
            return
        name = self._names[transactional_id]
        if kind == BEGUN:
            name.state, name.begun_ns = OPEN, rest[0]
        elif kind == IS_PREPARED:
            name.state, name.note = PREPARED, rest[0]
        else:
            assert kind == ENDED, kind
            outcome, note, *_ = rest
            name.ended.add(epoch, outcome, note)
            name.state, name.note = None, None
            name.written.clear()
            name.first_offsets.clear()
            name.epoch, name.used_ns = epoch + 1, self._now_ns
        self._next_expiry_ns = min(self._next_expiry_ns, self._due_ns(name))

    def _due_ns(self, name: Name) -> int:
        """After this time its transaction times out, or the name is forgotten."""
        if name.state is not None:
            return name.begun_ns + name.timeout_ns
        return NEVER_NS if self._id_expiration_ns is None else name.used_ns + self._id_expiration_ns

    def _plan_expiry(self) -> None:
        self._next_expiry_ns = min(map(self._due_ns, self._names.values()), default=NEVER_NS)

    def _outcome(self, producer: Producer) -> str:
        name = self._names.get(producer.transactional_id)
        if name is None:
            return UNKNOWN
        ended = name.ended.get(producer.epoch)
        if ended is not None:
            return ended
        return name.state if name.epoch == producer.epoch and name.state is not None else UNKNOWN

    @staticmethod
    def _describe(transactional_id: str, name: Name) -> TransactionDescription:
        return TransactionDescription(
            Producer(transactional_id, name.epoch),
            name.state or name.ended.get(name.epoch - 1) or UNKNOWN,
            sum(name.written.values()),
            name.begun_ns if name.state is not None else None,
            name.ended.newest_note,
            name.ended.commits,
        )
