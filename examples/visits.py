"""A job with a mistake, for `weir explore`: it keeps its counts where no checkpoint finds them.

See docs/exploration.md, which shows what is found and how the job is mended.
"""

from __future__ import annotations

from engine import CollectedResults, CollectionSource, Job, KeyedProcessFunction


class Count(KeyedProcessFunction):
    """Says of each visit how many there have been of its page."""

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
