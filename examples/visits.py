"""A job with a mistake, for `weir explore`: it keeps its counts where no checkpoint stores them.

docs/exploration.md shows what the search finds, and how to fix the job.
"""

from __future__ import annotations

from engine import CollectedResults, CollectionSource, Job, KeyedProcessFunction


class Count(KeyedProcessFunction):
    """Emits for each visit the number of visits to its page so far."""

    def open(self, ctx):
        self.seen = {}

    def process_element(self, page, ctx):
        self.seen[page] = self.seen.get(page, 0) + 1
        return [(page, self.seen[page])]

def job():
    job = Job("visits")
    pages = job.source(CollectionSource("home news home shop news home".split()), name="pages")
    pages.key_by(lambda page: page).process(Count, name="count").collect(CollectedResults(), name="out")
    return job
