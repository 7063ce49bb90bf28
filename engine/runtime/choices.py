"""The choice recorder: the one source of nondeterminism of a run.

Every decision that could have gone another way is a draw ``0 <= value < bound`` from a named stream. Streams are
independent: one more draw in one never reshuffles another. What was drawn is recorded as ``(stream, value, bound)``,
so that seed, replay, shrinking and exhaustive search are readers of one sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from engine.elements.errors import ConfigurationError

_MASK = (1 << 64) - 1


class Choice(NamedTuple):
    """One recorded decision."""

    stream: str
    value: int
    bound: int


class _SplitMix64:
    """Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (OOPSLA 2014), the 64-bit mixer."""

    __slots__ = ("_state",)

    def __init__(self, seed: str, stream: str) -> None:
        digest = blake2b(f"{seed}\0{stream}".encode(), digest_size=8).digest()
        self._state = int.from_bytes(digest, "big")

    def below(self, bound: int) -> int:
        self._state = state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((state ^ (state >> 31)) * bound) >> 64


class ChoiceRecorder:
    """Draws choices from a seed, or replays a recorded sequence, and records what was drawn."""

    def __init__(self, seed: str = "0", replay: Iterable[Choice] | None = None) -> None:
        self.seed = seed
        self.log: list[Choice] = []
        self._generators: dict[str, _SplitMix64] = {}
        self._replay = None if replay is None else iter(replay)

    def draw(self, stream: str, bound: int) -> int:
        """A value in ``0 .. bound-1``. A bound of 1 is no choice: nothing is drawn or recorded.

        Raises :class:`ConfigurationError` when a replayed sequence was recorded from another run.
        """
        assert bound >= 1, bound
        if bound == 1:
            return 0
        value = self._generate(stream, bound) if self._replay is None else self._next_replayed(stream, bound)
        self.log.append(Choice(stream, value, bound))
        return value

    def pick(self, ready: Sequence[tuple[int, int, str, Any, Any]]) -> int:
        """Which of the ready kernel events goes next, as its position; 0 is the oldest."""
        return self.draw("schedule", len(ready))

    def _generate(self, stream: str, bound: int) -> int:
        generator = self._generators.get(stream)
        if generator is None:
            generator = self._generators[stream] = _SplitMix64(self.seed, stream)
        return generator.below(bound)

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
