"""What a log knows of its transactional ids, and for how long.

A name is what all changes so far have made of it. It is forgotten when nobody has used it for long, and with it how its
transactions ended; epochs of later names are above those of all that were forgotten, so that whoever still has one, and
a zombie, are found out.
"""

from __future__ import annotations

from operators.log.port.transaction_log import OPEN, PREPARED, UNKNOWN, Producer, TransactionDescription
from operators.log.port.transaction_names import BEGUN, ENDED, FORGOTTEN, IS_PREPARED, REGISTERED, Change, Name

DEFAULT_ID_EXPIRATION_NS = 7 * 24 * 3600 * 1_000_000_000
"""How long a transactional id that nobody uses is remembered (Kafka: ``transactional.id.expiration.ms``, 7 days)."""

NEVER_NS = 1 << 63


class KnownNames:
    """See the module. ``id_expiration_ns``: how long a name is remembered that nobody uses, ``None`` = for ever."""

    def __init__(self, id_expiration_ns: int | None) -> None:
        self._id_expiration_ns = id_expiration_ns
        self._names: dict[str, Name] = {}
        self._now_ns = 0
        self._first_epoch = 0
        """Of new names: above those of all that were forgotten, for one of them may come back, and so may a zombie."""
        self._next_expiry_ns = NEVER_NS
        """No transaction is given up before, and no name forgotten."""

    def _apply(self, change: Change) -> None:
        """Names are what all changes so far have made of them."""
        kind, transactional_id, epoch, *rest = change
        if kind == REGISTERED:
            name = self._names.get(transactional_id)
            if name is None:
                name = self._names[transactional_id] = Name(epoch, rest[0], used_ns=self._now_ns)
            else:
                if name.ended.last_epoch == name.epoch - 1:
                    # Or names that are taken over at every restart, and never used, would live for ever.
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
        """Behind this time its transaction is given up, or it is forgotten."""
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
        )
