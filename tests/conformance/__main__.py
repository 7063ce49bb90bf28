"""``python -m tests.conformance FILE…``: replay recorded vectors against the engine.

Prints one line per vector that fails, and last the number of each verdict; no vector is ever skipped. Exit code 0
when none failed, 1 when some did, 2 when called wrongly.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from tests.conformance.runner import Verdict, one_line, replay_files


def main(arguments: list[str]) -> int:
    if not arguments:
        print("usage: python -m tests.conformance FILE…", file=sys.stderr)
        return 2
    counts: Counter[Verdict] = Counter()
    for result in replay_files([Path(argument) for argument in arguments]):
        counts[result.verdict] += 1
        if result.verdict is not Verdict.PASSED:
            print(one_line(str(result)))
    passed, failed = (counts[verdict] for verdict in Verdict)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
