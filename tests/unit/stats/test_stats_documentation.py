"""docs/methodology.md shows the figures that the code produces."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from stats_simulations import EXPERIMENTS, measured

PAGE = Path(__file__).parents[3] / "docs" / "methodology.md"
ROW = re.compile(r"^\| (.+?) \| ([\d.]+) % \| (\d+) \|$", re.MULTILINE)


def documented() -> dict[str, tuple[float, int]]:
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len({label for label, _, _ in rows}) == len(rows), "a figure is shown twice"
    return {label: (float(percent) / 100, int(trials)) for label, percent, trials in rows}


def test_the_page_shows_every_experiment_and_nothing_else() -> None:
    assert {label: trials for label, (_, trials) in documented().items()} == {
        label: trials for label, (_, trials) in EXPERIMENTS.items()
    }


@pytest.mark.parametrize("label", list(EXPERIMENTS))
def test_the_figure_is_what_the_code_does(label: str) -> None:
    shown, trials = documented()[label]
    rate = measured(label)
    pooled = (shown * trials + rate.hits) / (trials + rate.trials)
    # Four standard errors of a difference of two rates, and the rounding of the page.
    allowed = 4 * math.sqrt(pooled * (1 - pooled) * (1 / trials + 1 / rate.trials)) + 0.0005
    assert abs(rate.value - shown) <= allowed
