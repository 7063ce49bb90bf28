"""The choice recorder: the one source of nondeterminism of a run.

Every decision that could have gone another way is a draw ``0 <= value < bound`` from a named stream. Streams are
independent: one more draw in one never reshuffles another. Each draw is recorded as ``(stream, value, bound)``, so
seed, replay, shrinking and exhaustive search are readers of one sequence:

* :class:`ChoiceRecorder`     from a seed, or a recording from its beginning to its end;
* :class:`SparseChoices`      first come, first served, except for a few given draws: the result of shrinking;
* :class:`PriorityChoices`    the schedule by priorities with a few changes (PCT);
* :class:`EnumeratedChoices`  one sequence after the other in lexicographic order, up to a depth.

Each reads the stream ``schedule`` its own way and records it in the same form. All other streams come from the seed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from operator import itemgetter
from struct import Struct
from typing import Any, NamedTuple, overload

from engine.elements.errors import ConfigurationError

_MASK = (1 << 64) - 1
_HALF = (1 << 32) - 1
_WORD = 1 << 32

SCHEDULE = "schedule"
"""The stream from which the kernel draws which of the ready events goes next."""

ReadyEvent = tuple[int, int, str, Any, Any]
"""``(time, sequence, operation, target, payload)``, see :mod:`engine.runtime.kernel`."""


class Choice(NamedTuple):
    """One recorded decision."""

    stream: str
    value: int
    bound: int


class ChoiceLog(Sequence[Choice]):
    """Recorded choices, in order. Nearly all are of the schedule; such a choice takes eight bytes instead of a hundred.
    A run with a million channels makes four million.

    ``packed``  of each choice of the schedule the value and the bound, in 32 bits each. A bound of 0 stands for another
                choice: of 32 bits, as laws of chance draw them, or of any other bound.
    """

    __slots__ = ("_others", "packed")
    __hash__ = None  # type: ignore[assignment]  # it grows

    def __init__(self) -> None:
        self.packed = array("Q")
        self._others: dict[int, str | Choice] = {}
        """By position: the stream of a choice of 32 bits, whose value is packed; or the whole choice."""

    def append(self, choice: Choice) -> None:
        """One more choice."""
        self.add(*choice)

    def add_word(self, stream: str, value: int) -> None:
        """A choice of 32 bits."""
        packed = self.packed
        self._others[len(packed)] = stream
        packed.append(value << 32)

    def add(self, stream: str, value: int, bound: int) -> None:
        """The same, of its parts."""
        if bound == _WORD:
            self.add_word(stream, value)
        elif stream == SCHEDULE and bound <= _HALF:
            self.packed.append(value << 32 | bound)
        else:
            self._others[len(self.packed)] = Choice(stream, value, bound)
            self.packed.append(0)

    def __len__(self) -> int:
        return len(self.packed)

    def __iter__(self) -> Iterator[Choice]:
        return map(self._at, range(len(self.packed)))

    @overload
    def __getitem__(self, index: int) -> Choice: ...
    @overload
    def __getitem__(self, index: slice) -> list[Choice]: ...
    def __getitem__(self, index: int | slice) -> Choice | list[Choice]:
        positions = range(len(self.packed))[index]
        return self._at(positions) if isinstance(positions, int) else list(map(self._at, positions))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __repr__(self) -> str:
        return repr(list(self))

    def _at(self, position: int) -> Choice:
        packed = self.packed[position]
        if packed & _HALF:
            return Choice(SCHEDULE, packed >> 32, packed & _HALF)
        other = self._others[position]
        return Choice(other, packed >> 32, _WORD) if isinstance(other, str) else other


_STEP, _FACTOR, _OTHER_FACTOR = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_BLOCK = 128
"""So many numbers are made at once, as lanes of one large int: each has 128 bits, so no product reaches the next lane.
It takes a quarter of the time, about as much as numpy does."""
_BLOCK_PAYS = 32
"""A block takes as long as so many numbers made one by one."""
_ONES = sum(1 << 128 * lane for lane in range(_BLOCK))
_LANES = _ONES * _MASK
_STEPS = sum(((_BLOCK - lane) * _STEP & _MASK) << 128 * lane for lane in range(_BLOCK))
_unpack_lanes = Struct(f"<{2 * _BLOCK}Q").unpack


class _SplitMix64:
    """Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (OOPSLA 2014), the 64-bit mixer."""

    __slots__ = ("ahead", "state")

    def __init__(self, seed: str, stream: str) -> None:
        digest = blake2b(f"{seed}\0{stream}".encode(), digest_size=8).digest()
        self.state = int.from_bytes(digest, "big")
        self.ahead: list[int] = []
        """Numbers made already that come before those of ``state``, the first one last."""

    def below(self, bound: int) -> int:
        return ((self.ahead.pop() if self.ahead else self._several(1)[0]) * bound) >> 64

    def words(self, count: int) -> list[int]:
        """The next numbers of 32 bits: ``below(1 << 32)`` so many times."""
        found: list[int] = []
        while missing := count - len(found):
            ahead = self.ahead or (self.go_ahead() if missing >= _BLOCK_PAYS else self._several(missing)[::-1])
            found += [number >> 32 for number in ahead[: -missing - 1 : -1]]
            del ahead[-missing:]
        return found

    def go_ahead(self) -> list[int]:
        """Make the next numbers of 64 bits, and give ``ahead``."""
        # The same steps as for one number, below; the first number comes last.
        lanes = (_STEPS + self.state * _ONES) & _LANES
        self.state = lanes & _MASK
        lanes = ((lanes ^ (lanes >> 30 & _LANES)) * _FACTOR) & _LANES
        lanes = ((lanes ^ (lanes >> 27 & _LANES)) * _OTHER_FACTOR) & _LANES
        lanes ^= lanes >> 31 & _LANES
        self.ahead[:] = _unpack_lanes(lanes.to_bytes(16 * _BLOCK, "little"))[::2]
        return self.ahead

    def _several(self, count: int) -> list[int]:
        """The next numbers of ``state``, in order."""
        found, state = [], self.state
        for _ in range(count):
            state = (state + _STEP) & _MASK
            mixed = ((state ^ (state >> 30)) * _FACTOR) & _MASK
            mixed = ((mixed ^ (mixed >> 27)) * _OTHER_FACTOR) & _MASK
            found.append(mixed ^ (mixed >> 31))
        self.state = state
        return found


class ChoiceRecorder:
    """Draws choices from a seed, or replays a recorded sequence, and records the draws."""

    def __init__(self, seed: str = "0", replay: Iterable[Choice] | None = None) -> None:
        self.seed = seed
        self.log = ChoiceLog()
        self._generators: dict[str, _SplitMix64] = {}
        self._replay = None if replay is None else iter(replay)
        self._schedule_generator: _SplitMix64 | None = None
        # Only here: a subclass that reads draws another way reads its draws of the schedule in that way, too.
        if replay is None and type(self) is ChoiceRecorder:
            self._schedule_generator = self._generators[SCHEDULE] = _SplitMix64(seed, SCHEDULE)

    def draw(self, stream: str, bound: int) -> int:
        """A value in ``0 .. bound-1``. A bound of 1 is no choice: nothing is drawn or recorded.

        Raises :class:`ConfigurationError` when a replayed sequence was recorded from another run.
        """
        assert bound >= 1, bound
        if bound == 1:
            return 0
        value = self._generate(stream, bound) if self._replay is None else self._next_replayed(stream, bound)
        self.log.add(stream, value, bound)
        return value

    def words_ahead(self, stream: str, count: int) -> list[int] | None:
        """The next values of a stream that has one reader, who draws numbers of 32 bits and adds each to ``log`` when
        it is his choice. ``None``: they are known only one by one, as a recording is replayed."""
        return None if self._replay is not None else self._generator(stream).words(count)

    def pick(self, ready: Sequence[ReadyEvent]) -> int:
        """Which of the ready kernel events (two or more) goes next, as its position; 0 is the oldest."""
        schedule, bound = self._schedule_generator, len(ready)
        if schedule is None:
            return self.draw(SCHEDULE, bound)
        # Every event of a run passes here: the same as a draw, with the work of many done together.
        value = ((schedule.ahead or schedule.go_ahead()).pop() * bound) >> 64
        self.log.packed.append(value << 32 | bound)
        return value

    def _generate(self, stream: str, bound: int) -> int:
        return self._generator(stream).below(bound)

    def _generator(self, stream: str) -> _SplitMix64:
        generator = self._generators.get(stream)
        if generator is None:
            generator = self._generators[stream] = _SplitMix64(self.seed, stream)
        return generator

    def _next_replayed(self, stream: str, bound: int) -> int:
        assert self._replay is not None
        recorded = next(self._replay, None)
        if recorded is None:
            # The recording ended: go on from the seed, so that a shortened recording is still a whole run.
            return self._generate(stream, bound)
        if (recorded.stream, recorded.bound) != (stream, bound):
            raise ConfigurationError(
                f"choice {len(self.log)} was recorded as {recorded.stream!r} of {recorded.bound}, but this run asks"
                f" {stream!r} of {bound}: the recording belongs to another job, version or configuration"
            )
        return recorded.value

    def digest(self) -> str:
        """A digest of everything drawn so far."""
        joined = ";".join(f"{stream},{value},{bound}" for stream, value, bound in self.log)
        return blake2b(joined.encode(), digest_size=16).hexdigest()


class SparseChoices(ChoiceRecorder):
    """The oldest ready event goes first, except where ``schedule`` says otherwise: ``number of the draw -> value``,
    counting draws of the schedule from 0. A value past the bound means the last one, so a schedule made for a larger
    run is valid for this run, too."""

    def __init__(self, seed: str, schedule: Mapping[int, int]) -> None:
        super().__init__(seed)
        self._schedule = schedule
        self._number = -1

    def draw(self, stream: str, bound: int) -> int:
        """See the base class."""
        if stream != SCHEDULE:
            return super().draw(stream, bound)
        if bound == 1:
            return 0
        self._number += 1
        value = min(self._schedule.get(self._number, 0), bound - 1)
        self.log.packed.append(value << 32 | bound)
        return value


_SHORTEST_HORIZON, _HORIZONS = 16, 10
_TARGET = itemgetter(3)


class _Priorities(dict[Any, int]):
    """By target; one that is seen for the first time gets the next draw."""

    def __init__(self, draw: Callable[[], int]) -> None:
        self._draw = draw

    def __missing__(self, target: Any) -> int:
        self[target] = priority = self._draw()
        return priority


class PriorityChoices(ChoiceRecorder):
    """Probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized Scheduler with
    Probabilistic Guarantees of Finding Bugs, ASPLOS 2010).

    Each target gets a random priority when it is first seen, and of the ready ones that with the highest goes next. At
    ``changes`` random draws of the schedule the target that would go next falls to the lowest priority. A bug needing
    d ordered events is found with a probability of at least 1/(n * k**(d-1)) with n targets and k draws, given d-1
    changes. As k is not known before the run, the changes are placed within a length that is itself drawn: 16, 32, …
    """

    def __init__(self, seed: str, changes: int) -> None:
        super().__init__(seed)
        horizon = _SHORTEST_HORIZON << self._generate("priority horizon", _HORIZONS)
        self._change_at = {self._generate("priority changes", horizon) for _ in range(changes)}
        self._priorities = _Priorities(partial(self._generate, "priorities", _MASK))
        self._lowest = -1
        self._number = -1

    def pick(self, ready: Sequence[ReadyEvent]) -> int:
        """See the base class."""
        self._number += 1
        position = self._first(ready)
        if self._number in self._change_at:
            self._priorities[ready[position][3]] = self._lowest
            self._lowest -= 1
            position = self._first(ready)
        if len(ready) > 1:
            self.log.packed.append(position << 32 | len(ready))
        return position

    def _first(self, ready: Sequence[ReadyEvent]) -> int:
        # Without a step of Python for each event: all ready ones are asked for, again and again.
        priorities = list(map(self._priorities.__getitem__, map(_TARGET, ready)))
        return priorities.index(max(priorities))


class EnumeratedChoices(ChoiceRecorder):
    """One run of a systematic search: its draws of the schedule begin as ``prefix`` says, and go on with 0."""

    def __init__(self, seed: str = "0", prefix: Sequence[int] = ()) -> None:
        super().__init__(seed)
        self._prefix = prefix
        self._drawn: list[Choice] = []

    def draw(self, stream: str, bound: int) -> int:
        """See the base class."""
        if stream != SCHEDULE:
            return super().draw(stream, bound)
        if bound == 1:
            return 0
        number = len(self._drawn)
        value = self._prefix[number] if number < len(self._prefix) else 0
        assert value < bound, f"draw {number} is to be {value}, but this run asks for one below {bound}"
        choice = Choice(stream, value, bound)
        self._drawn.append(choice)
        self.log.append(choice)
        return value

    def following(self, depth: int | None = None) -> tuple[int, ...] | None:
        """The prefix of the next run in lexicographic order, ``None`` when this was the last. Only the first
        ``depth`` draws are varied, ``None`` = all."""
        drawn = self._drawn if depth is None else self._drawn[:depth]
        for number in range(len(drawn) - 1, -1, -1):
            choice = drawn[number]
            if choice.value + 1 < choice.bound:
                return (*(one.value for one in drawn[:number]), choice.value + 1)
        return None
