"""A run told to people: ``witness`` sees what happens, ``story`` says it step by step, ``swimlane`` draws it."""

from __future__ import annotations

from engine.explore.story.story import Story, StoryStep, tell, time_text
from engine.explore.story.swimlane import page
from engine.explore.story.witness import Witness

__all__ = [
    "Story",
    "StoryStep",
    "Witness",
    "page",
    "tell",
    "time_text",
]
