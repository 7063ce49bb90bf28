"""An acker as a live object: how long it remembers entries, also after its death."""

from __future__ import annotations

from types import SimpleNamespace

from engine.protocols.acking.anchoring import Ack, Init, Reply
from engine.protocols.acking.statistics import AckingStatistics
from engine.runtime.acking import AckerTask
from engine.runtime.kernel import Kernel

TIMEOUT_NS = 1_000
RECOVERY_NS = 10


class Run:
    """What an acker needs of its run: a kernel, and a receiver for its replies."""

    def __init__(self) -> None:
        self.kernel = Kernel()
        self.started_ns = self.kernel.now_ns
        self.statistics = AckingStatistics()
        self.settings = SimpleNamespace(recovery_ns=RECOVERY_NS)
        self.hook = self.instrument = None
        self.notes: list[str] = []
        self.note = self.notes.append
        self.replies: list[tuple[int, Reply]] = []
        self.acker = AckerTask(self, 0, 0)  # type: ignore[arg-type]

    def answer(self, acker: str, latency_ns: int, reply: Reply) -> None:
        self.replies.append((self.kernel.now_ns - self.started_ns, reply))

    def next_tick_ns(self) -> int:
        return self.started_ns + ((self.kernel.now_ns - self.started_ns) // TIMEOUT_NS + 1) * TIMEOUT_NS

    def at(self, at_ns: int, operation: str, payload: object) -> None:
        self.kernel.schedule(self.started_ns + at_ns, operation, self.acker, payload)


def test_a_death_makes_nothing_expire_earlier_for_its_successor() -> None:
    """The successor ignores the tick that its predecessor was waiting for."""
    run = Run()
    for before_ns in (10, 30, 50):
        run.at(before_ns, "receive", Ack(1, 1))
        run.at(before_ns + 1, "die", "killed")
    run.at(100, "receive", Init(2, 5, "numbers[0]"))
    run.at(2 * TIMEOUT_NS + 1, "receive", Ack(2, 5))
    run.kernel.run()
    assert run.notes == ["acker[0] was killed"] * 3
    assert run.replies == [(2 * TIMEOUT_NS + 1, Reply("ack", "numbers[0]", 2))]
    assert run.statistics.expired_entries == 0


def test_what_nobody_speaks_of_any_more_is_forgotten_after_three_ticks() -> None:
    """Afterwards the acker no longer ticks, so the run can end."""
    run = Run()
    run.at(100, "receive", Init(2, 5, "numbers[0]"))
    run.kernel.run()
    assert run.kernel.now_ns - run.started_ns == 3 * TIMEOUT_NS
    assert run.statistics.expired_entries == 1
    assert run.replies == []


def test_an_init_that_comes_again_is_thrown_away() -> None:
    """Its value would be 0 while the tuple is still on its way."""
    run = Run()
    run.at(100, "receive", Init(2, 5, "numbers[0]"))
    run.at(110, "receive", Init(2, 5, "numbers[0]"))
    run.at(120, "receive", Ack(2, 5))
    run.kernel.run()
    assert run.replies == [(120, Reply("ack", "numbers[0]", 2))]


def test_an_init_behind_the_acks_is_taken() -> None:
    """Messages may overtake each other: an entry that an ACK has made still waits for its INIT."""
    run = Run()
    run.at(100, "receive", Ack(2, 5))
    run.at(110, "receive", Init(2, 5, "numbers[0]"))
    run.kernel.run()
    assert run.replies == [(110, Reply("ack", "numbers[0]", 2))]
