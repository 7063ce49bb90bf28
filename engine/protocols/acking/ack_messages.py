"""What tasks, ackers and spouts say to each other (Storm: the streams of ``Acker``)."""

from __future__ import annotations

from typing import NamedTuple

ACK, FAIL, RESET = "ack", "fail", "reset"
"""Kinds of :class:`Reply`: the tree is complete; it has failed; its timeout is to begin anew."""


class Init(NamedTuple):
    """A spout has emitted a root. ``value``: exclusive or of the edges to its first tuples; ``task``: the spout."""

    root: int
    value: int
    task: str


class Ack(NamedTuple):
    """A tuple was handled. ``value``: its own edge and those of its children, exclusive or."""

    root: int
    value: int


class Fail(NamedTuple):
    """A tuple of the tree has failed."""

    root: int


class Reset(NamedTuple):
    """A tuple of the tree takes long: its time begins anew."""

    root: int


AckerMessage = Init | Ack | Fail | Reset
"""Everything that an acker takes."""


class Reply(NamedTuple):
    """From an acker to the spout ``task``: what has become of ``root``."""

    kind: str
    task: str
    root: int


KIND_NAMES: dict[type, str] = {Init: "init", Ack: "ack", Fail: "fail", Reset: "reset"}
"""What messages to ackers are counted as."""
