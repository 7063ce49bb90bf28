"""Messages between tasks and the job manager: each is an event of the receiver, and some may go astray on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from engine.runtime.hook import RunHook
    from engine.runtime.kernel.kernel import Kernel

MESSAGES = (
    "trigger_checkpoint",
    "notify_checkpoint_complete",
    "notify_checkpoint_aborted",
    "notify_stop_complete",
    "receive_acknowledge",
    "receive_decline",
    "may_finish",
)
"""Messages between job manager and tasks that may go astray, by the method that takes them."""

DELIVERED: tuple[int, ...] = (0,)
"""The usual fate of a message: it comes once, at once."""


class Addressee(Protocol):
    """A task, as its messages see it."""

    @property
    def name(self) -> str:
        """By which faults know it."""

    def receive_mail(self, mail: tuple[str, tuple[Any, ...]]) -> None:
        """A message has come (kernel event): which method takes it, and its arguments."""


class Post:
    """Delivers the messages of one run, and those to ``master``, its job manager. ``sent``: how many of
    :data:`MESSAGES` there were, by name."""

    def __init__(self, kernel: Kernel, hook: RunHook | None, master: Any) -> None:
        self.sent: dict[str, int] = {}
        self._kernel = kernel
        self._hook = hook
        self._master = master

    def to_master(self, task: str, message: str, payload: object) -> None:
        """``task`` tells the job manager something."""
        self._send(message, task, message, self._master, payload)

    def to_task(self, task: Addressee, message: str, *arguments: object) -> None:
        """The job manager tells a task something."""
        self._send(message, task.name, "receive_mail", task, (message, arguments))

    def _send(self, message: str, task: str, operation: str, receiver: Any, payload: object) -> None:
        delays_ns = DELIVERED
        if message in MESSAGES:
            self.sent[message] = self.sent.get(message, 0) + 1
            if self._hook is not None:
                delays_ns = self._hook.delays_ns(message, task)
        for delay_ns in delays_ns:
            self._kernel.schedule(self._kernel.now_ns + delay_ns, operation, receiver, payload)
