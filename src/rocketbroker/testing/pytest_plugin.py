"""pytest plugin: a broker as a fixture, in the scope of the ini option ``rocketmq_scope``.

``rocketmq`` is the server, ``rocketmq_topic`` a topic name of its own for each test, ``rocketmq_producer`` a started
producer (it needs pytest-asyncio). Each worker of pytest-xdist has servers of its own.
"""

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, cast

import pytest

if TYPE_CHECKING:
    from rocketbroker.testing.rocketmq_server import RocketMQServer

_Scope = Literal["function", "module", "session"]
_SCOPES = ("function", "module", "session")
_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option."""
    parser.addini("rocketmq_scope", "scope of the fixture rocketmq: function, module or session", default="function")


def pytest_configure(config: pytest.Config) -> None:
    """Add the fixture that needs pytest-asyncio."""
    if config.pluginmanager.hasplugin("asyncio"):
        config.pluginmanager.import_plugin("rocketbroker.testing.pytest_producer")


def _scope(fixture_name: str, config: pytest.Config) -> _Scope:
    scope = config.getini("rocketmq_scope")
    if scope not in _SCOPES:
        raise pytest.UsageError(f"rocketmq_scope={scope}: {fixture_name} takes {', '.join(_SCOPES)}")
    return cast("_Scope", scope)


@pytest.fixture(scope=_scope)
def rocketmq() -> "Iterator[RocketMQServer]":
    """A name server and a broker on free ports, with a temporary store."""
    from rocketbroker.testing.rocketmq_server import RocketMQServer

    with RocketMQServer() as server:
        yield server


@pytest.fixture
def rocketmq_topic(request: pytest.FixtureRequest) -> str:
    """Name of a topic that no other test has; it is created by the first send."""
    name = re.sub(r"[^\w-]", "_", request.node.name, flags=re.ASCII)
    return f"{name[:100]}_{next(_numbers)}"
