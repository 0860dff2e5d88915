"""pytest plugin: a broker as a fixture, in the scope of the ini option ``rocketmq_scope``.

``rocketmq`` is the server, ``rocketmq_topic`` a topic name of its own for each test, ``rocketmq_producer`` a started
producer (it needs pytest-asyncio). Each worker of pytest-xdist has servers of its own. A server that several tests
share is reset before each but the first, unless the ini option ``rocketmq_reset`` is false. With ``rocketmq_grpc`` the
server also serves the 5.x SDKs, at ``rocketmq.endpoints``.
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
# The server that runs, once a test has used it.
_USED = pytest.StashKey["RocketMQServer"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini options."""
    parser.addini("rocketmq_scope", "scope of the fixture rocketmq: function, module or session", default="function")
    parser.addini("rocketmq_reset", "reset a server that tests share before each test", type="bool", default=True)
    parser.addini("rocketmq_grpc", "serve the 5.x SDKs as well, at rocketmq.endpoints", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Check the ini options, and add the fixture that needs pytest-asyncio."""
    if config.getini("rocketmq_scope") not in _SCOPES:
        # In a fixture's scope it would be an internal error of pytest, with its traceback.
        raise pytest.UsageError(
            f"rocketmq_scope={config.getini('rocketmq_scope')} is unknown; give one of {', '.join(_SCOPES)}"
        )
    if config.pluginmanager.hasplugin("asyncio"):
        config.pluginmanager.import_plugin("rocketbroker.testing.pytest_producer")


def _scope(fixture_name: str, config: pytest.Config) -> _Scope:
    return cast("_Scope", config.getini("rocketmq_scope"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Reset the server that an earlier test used, before the fixtures of this one are made."""
    if "rocketmq" in getattr(item, "fixturenames", ()) and item.config.getini("rocketmq_reset"):
        server = item.config.stash.get(_USED, None)
        if server is not None:
            server.reset()


@pytest.fixture(scope=_scope)
def rocketmq(pytestconfig: pytest.Config) -> "Iterator[RocketMQServer]":
    """A name server and a broker on free ports, with a temporary store."""
    from rocketbroker.testing.rocketmq_server import RocketMQServer

    with RocketMQServer(grpc=pytestconfig.getini("rocketmq_grpc")) as server:
        pytestconfig.stash[_USED] = server
        yield server
        del pytestconfig.stash[_USED]


@pytest.fixture
def rocketmq_topic(request: pytest.FixtureRequest) -> str:
    """Name of a topic that no other test has; it is created by the first send."""
    name = re.sub(r"[^\w-]", "_", request.node.name, flags=re.ASCII)
    return f"{name[:100]}_{next(_numbers)}"
