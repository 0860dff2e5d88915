from pathlib import Path

import pytest

from tests.support import golden_store


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one of them that has groups and dead letters."""
    return golden_store.unpack("clean", tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="session", params=golden_store.NAMES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store directory recorded from Apache RocketMQ; not to be changed."""
    return golden_store.unpack(request.param, tmp_path_factory.mktemp(request.param))
