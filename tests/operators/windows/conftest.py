"""Where windows that have not fired are kept: every test of event-time windows runs with both places."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from operators.windows import contents


@pytest.fixture(scope="module", params=[0, 1_000], ids=["open windows", "all in state"])
def few_records(request: pytest.FixtureRequest) -> Iterator[None]:
    """The operator opens windows for every batch, or for none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "_FEW_RECORDS", request.param)
        yield
