"""Very many runs of one job: ``swarm`` draws a case from each seed, ``campaign`` makes the runs, in several
``workers``, and ``coverage`` adds up what they have seen. ``token`` names one run in a line of text.
"""

from __future__ import annotations

from engine.explore.search.campaign import (
    CHUNK_RUNS,
    CampaignOrder,
    CampaignReport,
    Explorer,
    Failure,
    explore,
    garbage_kept,
)
from engine.explore.search.coverage import Coverage
from engine.explore.search.swarm import Swarm
from engine.explore.search.token import FAMILY, Drawn, Token, digest_of_job_file, job_fingerprint, parse_token

__all__ = [
    "CHUNK_RUNS",
    "FAMILY",
    "CampaignOrder",
    "CampaignReport",
    "Coverage",
    "Drawn",
    "Explorer",
    "Failure",
    "Swarm",
    "Token",
    "digest_of_job_file",
    "explore",
    "garbage_kept",
    "job_fingerprint",
    "parse_token",
]
