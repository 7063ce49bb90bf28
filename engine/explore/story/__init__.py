"""A run told to people: ``witness`` watches it, ``story`` tells it step by step, ``swimlane`` draws it."""

from __future__ import annotations

from engine.explore.story.story import Story as Story, StoryStep as StoryStep, tell as tell, time_text as time_text
from engine.explore.story.swimlane import page as page
from engine.explore.story.witness import Witness as Witness
