import logging

import pytest

from rocketbroker.store.read import damage_log
from rocketbroker.store.read.damage_log import DamageLog


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]


def test_a_damaged_place_is_logged_once(caplog: pytest.LogCaptureFixture):
    found = DamageLog()
    for _ in range(3):
        found.report("/store/commitlog/0", 100, "zeros")
    found.report("/store/commitlog/0", 200, "zeros")
    found.report("/store/commitlog/1", 100, "zeros")

    assert found.count == len(lines(caplog)) == 3
    assert lines(caplog)[0] == (
        "/store/commitlog/0 is damaged at 100: zeros. Stop the broker and run `mqstore check` on its store"
    )


def test_the_cache_is_bounded(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(damage_log, "_MOST_LOGGED", 5)
    found = DamageLog()
    for position in range(20):
        found.report("/store/commitlog/0", position, "zeros")
    found.report("/store/commitlog/0", 0, "zeros")

    assert found.count == 20
    assert len(lines(caplog)) == 6
    assert "further ones are counted but not logged" in lines(caplog)[-1]
