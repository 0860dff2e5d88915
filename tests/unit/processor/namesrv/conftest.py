"""The name server that the handlers of this folder belong to."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.namesrv_fixture import NamesrvFixture


@pytest.fixture
def make_namesrv(tmp_path: Path) -> Iterator[Callable[..., NamesrvFixture]]:
    made: list[NamesrvFixture] = []

    def make(**settings: object) -> NamesrvFixture:
        made.append(NamesrvFixture(tmp_path, **settings))
        return made[-1]

    yield make
    for namesrv in made:
        namesrv.close()


@pytest.fixture
def namesrv(make_namesrv: Callable[..., NamesrvFixture]) -> NamesrvFixture:
    return make_namesrv()
