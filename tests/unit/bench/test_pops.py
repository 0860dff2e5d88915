"""The profile of POP pops and acknowledges what it sends, and counts the records of it."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from bench.pops import burst, pop_profile, without_records
from bench.send_path import send_path
from rocketbroker.broker.pop.pop_check_points import Acknowledged, PopCheckPoints


@pytest.mark.parametrize("most", [1, 32])
async def test_all_messages_are_popped_and_acknowledged_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
):
    numbers: list[int] = []
    acknowledge = PopCheckPoints.acknowledge

    def noting(*args: Any) -> Acknowledged:
        acknowledged = acknowledge(*args)
        numbers.append(acknowledged.number)
        return acknowledged

    monkeypatch.setattr(PopCheckPoints, "acknowledge", noting)
    async with send_path(tmp_path) as path:
        figures = [burst(path, 512 * number, most, 10) for number in range(2)][1]

    assert sum(numbers) == 1024
    # A check point for each queue that a pop read, and a record of its acknowledgements.
    assert figures.records == 2 * len(numbers) / 1024
    assert figures.size > 300 * figures.records


async def test_a_broker_without_records_pops_all_the_same(tmp_path: Path):
    with patch.object(PopCheckPoints, "_put", without_records()):
        figures = await pop_profile(tmp_path, 32, 10, 1)
    assert (figures.records, figures.size) == (0, 0)
    assert figures.pop > 0 < figures.ack
