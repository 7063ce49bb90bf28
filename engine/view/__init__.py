"""A page for any run: ``recorder`` watches a run or a case, ``page_data`` turns the recording into plain data, ``page``
puts the data into one HTML file that opens offline. ``readings`` reads the state of a running job, ``pairing`` puts two
runs in step, ``shown`` makes short harmless texts. What the browser runs is in ``assets``.
"""

from __future__ import annotations

from engine.view.case_pages import case_page as case_page, cases_page as cases_page
from engine.view.compare import (
    Compared as Compared,
    compare_modes as compare_modes,
    comparison_page as comparison_page,
    comparison_table as comparison_table,
    verdict_of as verdict_of,
)
from engine.view.ledger_trail import trail_of as trail_of
from engine.view.page import check_place as check_place, page as page, write_page as write_page
from engine.view.page_data import run_data as run_data
from engine.view.perfetto import PerfettoTrace as PerfettoTrace, perfetto_trace as perfetto_trace
from engine.view.recorder import Recorder as Recorder
from engine.view.side_by_side import Comparison as Comparison, side_by_side as side_by_side
from engine.view.single import FAULT as FAULT, RunFace as RunFace, run_page as run_page
from engine.view.watch import Watched as Watched, watch as watch
