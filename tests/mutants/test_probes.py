"""Every mutant of an area changes what its probe sees, and is gone when it is switched off."""

from __future__ import annotations

import pytest

from tests.mutants.areas import BY_AREA, AreaMutant


@pytest.mark.parametrize("mutant", BY_AREA, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_what_its_probe_sees_and_is_undone(mutant: AreaMutant) -> None:
    """Otherwise a search could find nothing, or the next search would find the rest of this mistake."""
    healthy = mutant.probe()
    with mutant.patch():
        assert mutant.probe() != healthy
    assert mutant.probe() == healthy


def test_areas_have_two_mutants_each_and_names_differ() -> None:
    """A name stands for one mistake, and no area is left to a single one."""
    areas = [mutant.area for mutant in BY_AREA]
    assert all(areas.count(area) >= 2 for area in areas)
    assert len({mutant.name for mutant in BY_AREA}) == len(BY_AREA)
