"""A slave at any lag that is promoted: what was acknowledged is delivered, rather twice than not at all."""

from pathlib import Path

import pytest

from rocketbroker.broker.slave import slave_synchronize
from tests.support.promotion import PromotedPair

RUNS = 100


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_synchronize, "INTERVAL_S", 0.1)
    monkeypatch.setattr(slave_synchronize, "LOOK_S", 0.02)


@pytest.mark.parametrize(("restarts", "is_killed"), [(True, False), (False, True)], ids=["slow", "cut"])
async def test_a_promoted_slave_delivers_what_was_acknowledged(tmp_path: Path, *, restarts: bool, is_killed: bool):
    print(await PromotedPair(tmp_path, 1).run(restarts=restarts, is_killed=is_killed))


@pytest.mark.soak
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(RUNS))
async def test_a_promoted_slave_delivers_what_was_acknowledged_at_any_lag(tmp_path: Path, seed: int):
    print(f"seed {seed}:", await PromotedPair(tmp_path, seed).run(restarts=seed % 2 == 0, is_killed=seed % 4 < 2))
