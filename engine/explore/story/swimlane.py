"""A story as a picture: one self-contained HTML page with the steps as rows and the tasks as lanes.

Time runs downwards, one row per step, with the same numbers as the story in text. An arrow leads from the step that
sends an element to the step that takes it: a solid line for records, a dashed one for barriers. The arrow of an element
that was never taken ends in the air. Snapshots, blocked channels, crashes and commits have a sign each, explained on
the page. The page fetches nothing: style and drawing are part of it, so it opens offline, for years, in light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from engine.explore.story.story import (
    ABORT,
    CHANCE,
    COMMIT,
    COMPLETE,
    CRASH,
    FAULT,
    MANAGER,
    PROCESS,
    RESTORE,
    SNAPSHOT,
    TRIGGER,
    Story,
    StoryStep,
    time_text,
)
from engine.explore.story.witness import RECORDS

_LANE, _ROW, _TOP, _LEFT = 118, 26, 46, 112
_STUB = 16
_MOST_ROWS = 250
_LONGEST_LABEL = 18

_LEGEND = (
    ("<span class='s records'></span> records", "sent and taken"),
    ("<span class='s barrier'></span> barrier", "of a checkpoint"),
    ("◆ snapshot", "taken or acknowledged"),
    ("▮ blocked", "a channel waits after its barrier"),
    ("⚡ fault", "something goes wrong"),
    ("✕ crash", "an actor dies here"),
    ("✔ complete", "the checkpoint exists"),
    ("● commit", "readers see something new"),
)

_SIGNS = {CRASH: "✕", FAULT: "⚡", COMPLETE: "✔", ABORT: "⊘", COMMIT: "●", SNAPSHOT: "◆", TRIGGER: "▷", RESTORE: "↻"}

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #68727f; --line: #d5dbe3; --paper: #fff; --band: #f5f7fa;
  --records: #2f6fb3; --barrier: #b06a00; --bad: #c02f2f; --good: #23804a; --mark: #fff1c9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #98a3b1; --line: #38414d; --paper: #14181e;
  --band: #1a2028; --records: #6fb0f2; --barrier: #e8a848; --bad: #ff7070; --good: #5fcf8b; --mark: #453a16; } }
body { margin: 0; padding: 24px; background: var(--paper); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 18px; margin: 0 0 6px; } h2 { font-size: 15px; margin: 26px 0 6px; }
pre { background: var(--band); padding: 10px 12px; overflow-x: auto; border-radius: 6px; font-size: 12.5px;
  white-space: pre-wrap; overflow-wrap: anywhere; }
ul.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; list-style: none; padding: 0; color: var(--soft); }
ul.legend b { color: var(--ink); font-weight: 600; }
.s { display: inline-block; width: 22px; border-top: 2px solid; vertical-align: middle; }
.s.records { border-color: var(--records); } .s.barrier { border-color: var(--barrier); border-top-style: dashed; }
.chart { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
svg { display: block; font: 11.5px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .soft { fill: var(--soft); } svg .lane { stroke: var(--line); }
svg .band { fill: var(--band); } svg .mark { fill: var(--mark); } svg .dead { fill: var(--bad); opacity: .13; }
svg .head { font-weight: 600; text-anchor: middle; } svg .sign { text-anchor: middle; font-size: 13px; }
svg .label { font-size: 10px; text-anchor: middle; paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
svg .records { stroke: var(--records); fill: none; } svg .barrier { stroke: var(--barrier); stroke-dasharray: 5 3; }
svg .tip-records { fill: var(--records); } svg .tip-barrier { fill: var(--barrier); }
svg text.crash, svg text.fault { fill: var(--bad); font-weight: 700; }
svg text.complete, svg text.commit { fill: var(--good); }
svg text.snapshot { fill: var(--barrier); } svg .block { fill: var(--barrier); }
svg .lost { stroke-dasharray: 1 3; } svg .dot { fill: var(--ink); }
"""


def page(title: str, headline: str, sections: Sequence[tuple[str, str]], story: Story) -> str:
    """The whole page: ``sections`` are headings with text as it is, shown above and below the picture."""
    legend = "".join(f"<li><b>{sign}</b> {meaning}</li>" for sign, meaning in _LEGEND)
    parts = [
        "<!DOCTYPE html>",
        "<html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(headline)}</h1>",
        *(f"<h2>{escape(heading)}</h2><pre>{escape(text)}</pre>" for heading, text in sections),
        "<h2>What happened</h2>",
        f"<ul class='legend'>{legend}</ul>",
        f"<div class='chart'>{picture(story)}</div>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def picture(story: Story) -> str:
    return _Picture(story).svg()


class _Picture:
    def __init__(self, story: Story) -> None:
        self._story = story
        self._steps = story.shortened(_MOST_ROWS)
        acting = {actor for step in self._steps for actor in step.actors}
        lanes = [actor for actor in story.actors if actor in acting or actor != MANAGER]
        self._x = {actor: _LEFT + _LANE // 2 + number * _LANE for number, actor in enumerate(lanes)}
        self._right = _LEFT + _LANE * len(lanes)
        self._width = self._right + 7 * max((len(_row_text(step)) for step in self._steps), default=0) + 24
        self._height = _TOP + _ROW * len(self._steps) + 14

    def svg(self) -> str:
        rows = [self._row(row, step) for row, step in enumerate(self._steps)]
        parts = [
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{self._width}' height='{self._height}'"
            f" viewBox='0 0 {self._width} {self._height}' role='img' aria-label='What happened, step by step'>",
            *(background for background, _ in rows),
            *(self._lane(actor, x) for actor, x in self._x.items()),
            *self._arrows(),
            *(foreground for _, foreground in rows),
            "</svg>",
        ]
        return "\n".join(parts)

    def _lane(self, actor: str, x: int) -> str:
        name = escape(actor)
        return (
            f"<line class='lane' x1='{x}' y1='{_TOP - 10}' x2='{x}' y2='{self._height}'/>"
            f"<text class='head' x='{x}' y='24'>{name}</text>"
        )

    @staticmethod
    def _y(row: int) -> int:
        return _TOP + _ROW * row + _ROW // 2

    def _row(self, row: int, step: StoryStep) -> tuple[str, str]:
        y, top = self._y(row), self._y(row) - _ROW // 2
        is_marked = bool(step.number) and step.number == self._story.distinguishing
        shades = ["mark"] if is_marked else [] if row % 2 else ["band"]
        shades += ["dead"] if step.dies else []
        background = "".join(
            f"<rect class='{shade}' x='0' y='{top}' width='{self._width}' height='{_ROW}'/>" for shade in shades
        )
        signs = "".join(self._sign(step, x, y) for x in self._places(step))
        said = escape(_row_text(step))
        foreground = (
            f"<g><title>{escape(step.text)}</title>"
            f"<text class='soft' x='10' y='{y + 4}'>{step.number or '…'}</text>"
            f"<text class='soft' x='38' y='{y + 4}'>{time_text(step.time_ns)}</text>"
            f"{signs}<text x='{self._right + 10}' y='{y + 4}'>{said}</text></g>"
        )
        return background, foreground

    def _places(self, step: StoryStep) -> list[int]:
        if PROCESS in step.actors:
            return list(self._x.values())
        if CHANCE in step.actors:
            return [_LEFT - 12]
        return [self._x[actor] for actor in step.actors if actor in self._x]

    def _sign(self, step: StoryStep, x: int, y: int) -> str:
        sign = _SIGNS.get(CRASH if step.dies else step.kind)
        block = f"<rect class='block' x='{x - 13}' y='{y - 7}' width='4' height='14'/>" if step.blocks else ""
        if sign is None:
            return f"{block}<circle class='dot' cx='{x}' cy='{y}' r='3.2'/>"
        return f"{block}<text class='sign {CRASH if step.dies else step.kind}' x='{x}' y='{y + 5}'>{sign}</text>"

    def _arrows(self) -> list[str]:
        places = {
            arrow.element: (self._x[step.actors[0]], self._y(row))
            for row, step in enumerate(self._steps)
            for arrow in step.taken
        }
        taken = {arrow.element: None for step in self._story.steps for arrow in step.taken}
        drawn: list[str] = []
        for row, step in enumerate(self._steps):
            for arrow in step.sent:
                kind = "barrier" if arrow.is_barrier else RECORDS
                start = (self._x[step.actors[0]], self._y(row))
                if arrow.element in places:
                    drawn.append(self._arrow(kind, arrow.label, start, places[arrow.element]))
                elif arrow.element not in taken:
                    drawn.append(self._lost(kind, arrow.label, start))
        return drawn

    @staticmethod
    def _lost(kind: str, label: str, start: tuple[int, int]) -> str:
        x, y = start
        return (
            f"<line class='{kind} lost' x1='{x}' y1='{y}' x2='{x + 2 * _STUB}' y2='{y + _STUB}'>"
            f"<title>{escape(label)}: it was never taken</title></line>"
        )

    @staticmethod
    def _arrow(kind: str, label: str, start: tuple[int, int], end: tuple[int, int]) -> str:
        (x1, y1), (x2, y2) = start, end
        way = 1 if x2 > x1 else -1
        tip = x2 - 6 * way
        shown = label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"
        # Near its end, where arrows to one lane lie apart; in the middle they would cover each other. The row names the
        # barrier, because several of them go the same way at a time.
        at_x, at_y = x2 - (x2 - x1) * 0.36, y2 - (y2 - y1) * 0.36 - 3
        text = f"<text class='label' x='{at_x:.0f}' y='{at_y:.0f}'>{escape(shown)}</text>" if kind == RECORDS else ""
        return (
            f"<g><title>{escape(label)}</title><line class='{kind}' x1='{x1}' y1='{y1}' x2='{tip}' y2='{y2}'/>"
            f"<path class='tip-{kind}' d='M{x2 - 3 * way},{y2} l{-8 * way},-4 v8 z'/>{text}</g>"
        )


def _row_text(step: StoryStep) -> str:
    text = step.text
    return text if len(text) <= 150 else f"{text[:149]}…"
