"""A run told to people: ``witness`` watches it, ``teller`` tells it step by step, ``story`` is what people read,
``swimlane`` draws it."""

from __future__ import annotations

from engine.explore.story.story import (
    CHANCE as CHANCE,
    MANAGER as MANAGER,
    PROCESS as PROCESS,
    USER as USER,
    Story as Story,
    StoryStep as StoryStep,
    time_text as time_text,
)
from engine.explore.story.swimlane import page as page
from engine.explore.story.teller import Saying as Saying, sayings as sayings, tell as tell, value_text as value_text
from engine.explore.story.witness import OutputChanged as OutputChanged, RecordsRead as RecordsRead, Witness as Witness
