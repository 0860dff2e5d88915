import pytest

from rocketbroker.analytics.spark import read_options


@pytest.fixture(autouse=True)
def never_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let streams that have nothing new be polled again at once; tests of the pause set a clock of their own."""
    monkeypatch.setattr(read_options, "sleep", lambda _seconds: None)
