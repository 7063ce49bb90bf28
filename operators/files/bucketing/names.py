"""The names of the files of a bucketing sink (Flink: ``BucketingSink``).

A part has one final name, ``{part_prefix}-{subtask}-{count}{part_suffix}``. Until it is finished, a prefix and a suffix
around that name show its state. A file beside it may say how much of it is valid.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from engine.elements.errors import ConfigurationError

IN_PROGRESS, PENDING, FINISHED, VALID_LENGTH = "in_progress", "pending", "finished", "valid_length"


@dataclass(frozen=True, slots=True)
class BucketingNames:
    """Prefixes and suffixes. With the defaults, which are Flink's, readers see finished parts only, because names that
    start with ``_`` are hidden.

    With ``pending_prefix`` and ``pending_suffix`` both empty a part is finished as soon as it is closed: for jobs
    without checkpoints.
    """

    part_prefix: str = "part"
    part_suffix: str = ""
    in_progress_prefix: str = "_"
    in_progress_suffix: str = ".in-progress"
    pending_prefix: str = "_"
    pending_suffix: str = ".pending"
    valid_length_prefix: str = "_"
    valid_length_suffix: str = ".valid-length"

    def __post_init__(self) -> None:
        for field in fields(self):
            text = getattr(self, field.name)
            if not isinstance(text, str) or "/" in text or "\0" in text:
                raise ConfigurationError(f"{field.name} is {text!r}; it must be a text without '/'")
        if not self.part_prefix:
            raise ConfigurationError("part_prefix is empty; without one a part cannot be told from other files")
        worn = {
            "in_progress_*": (self.in_progress_prefix, self.in_progress_suffix),
            "pending_*": (self.pending_prefix, self.pending_suffix),
            "valid_length_*": (self.valid_length_prefix, self.valid_length_suffix),
        }
        for what in ("in_progress_*", "valid_length_*"):
            others = [other for other in worn if other != what and worn[other] == worn[what]]
            if others or worn[what] == ("", ""):
                raise ConfigurationError(
                    f"{what} are {worn[what]!r}, the same as {others[0] if others else 'of a finished part'}\n"
                    "  fix: choose prefixes and suffixes by which the files can be told apart"
                )

    @property
    def finishes_on_close(self) -> bool:
        """Whether pending parts and finished ones have the same name."""
        return not self.pending_prefix and not self.pending_suffix

    def part(self, subtask: int, count: int) -> str:
        """The final name of a part."""
        return f"{self.part_prefix}-{subtask}-{count}{self.part_suffix}"

    def in_progress(self, part: str) -> str:
        """The name of the part while it is written."""
        return f"{self.in_progress_prefix}{part}{self.in_progress_suffix}"

    def pending(self, part: str) -> str:
        """The name of the part from its end to the completion of the checkpoint that holds it."""
        return f"{self.pending_prefix}{part}{self.pending_suffix}"

    def valid_length(self, part: str) -> str:
        """The file that says how many bytes of the part are valid."""
        return f"{self.valid_length_prefix}{part}{self.valid_length_suffix}"

    def kind_of(self, name: str) -> str | None:
        """``"in_progress"``, ``"pending"``, ``"finished"`` or ``"valid_length"``; ``None`` when the sink has no such
        files."""
        part = rf"{re.escape(self.part_prefix)}-\d+-\d+{re.escape(self.part_suffix)}"
        if re.fullmatch(part, name):
            return FINISHED
        for kind, prefix, suffix in (
            (IN_PROGRESS, self.in_progress_prefix, self.in_progress_suffix),
            (PENDING, self.pending_prefix, self.pending_suffix),
            (VALID_LENGTH, self.valid_length_prefix, self.valid_length_suffix),
        ):
            if re.fullmatch(re.escape(prefix) + part + re.escape(suffix), name):
                return kind
        return None
