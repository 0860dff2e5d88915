"""A sound store for the tests of its audit, and copies of it to damage."""

import asyncio
import shutil
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_ext import MessageExt
from tests.support.audited_store import make_audited_store


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sound") / "store"


@pytest.fixture(scope="session")
def queued(sound: Path) -> list[MessageExt]:
    """The messages of QUEUE in the store ``sound``."""
    return asyncio.run(make_audited_store(sound))


@pytest.fixture
def copy(sound: Path, queued: list[MessageExt], tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "copy")
    return tmp_path / "copy"
