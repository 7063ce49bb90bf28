"""Very many runs of one job: ``swarm`` draws a case from each seed, ``campaign`` makes the runs, in several
``workers``, and ``coverage`` adds up what they have visited. A ``made_run`` is one row of their results; ``token``
names one run in a line of text.
"""

from __future__ import annotations

from engine.explore.search.campaign import (
    CHUNK_RUNS as CHUNK_RUNS,
    CampaignOrder as CampaignOrder,
    CampaignReport as CampaignReport,
    Chunk as Chunk,
    Explorer as Explorer,
    Failure as Failure,
    explore as explore,
    garbage_kept as garbage_kept,
)
from engine.explore.search.coverage import Coverage as Coverage
from engine.explore.search.made_run import MadeRun as MadeRun
from engine.explore.search.swarm import Swarm as Swarm
from engine.explore.search.token import (
    FAMILY as FAMILY,
    Drawn as Drawn,
    Token as Token,
    digest_of_job_file as digest_of_job_file,
    job_fingerprint as job_fingerprint,
    parse_token as parse_token,
)
from engine.explore.search.workers import Hire as Hire
