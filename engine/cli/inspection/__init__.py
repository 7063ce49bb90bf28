"""A checkpoint for people: ``checkpoint_reader`` reads and verifies it, other modules decode keyed state and records in
flight and compare two checkpoints, all of it as data or as lines of text.
"""

from __future__ import annotations

from engine.cli.inspection.checkpoint_reader import Selection as Selection, inspect_checkpoint as inspect_checkpoint
from engine.cli.inspection.differences import compare as compare, difference_lines as difference_lines
from engine.cli.inspection.inspection_text import inspection_lines as inspection_lines
