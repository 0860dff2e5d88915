"""What the crash tests share."""

import pytest

from rocketbroker.store.flush import flush_service


@pytest.fixture
def no_flush_by_itself(monkeypatch) -> None:
    """The disk is synced where a script says so, so that a seed gives one journal."""
    monkeypatch.setattr(flush_service, "RETRY_S", 3600)
