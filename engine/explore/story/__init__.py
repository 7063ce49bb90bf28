"""A run told to people: ``witness`` watches it, ``story`` tells it step by step, ``swimlane`` draws it."""

from __future__ import annotations

from engine.explore.story.story import (
    CHANCE as CHANCE,
    MANAGER as MANAGER,
    PROCESS as PROCESS,
    USER as USER,
    Saying as Saying,
    Story as Story,
    StoryStep as StoryStep,
    sayings as sayings,
    tell as tell,
    time_text as time_text,
)
from engine.explore.story.swimlane import page as page
from engine.explore.story.witness import OutputChanged as OutputChanged, RecordsRead as RecordsRead, Witness as Witness
