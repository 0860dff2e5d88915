"""Tests of what touches the network run on plain asyncio and on uvloop, all others on uvloop as servers do."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

NETWORK = {"test_first_byte_relay.py", "test_grpc_server.py"}


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Called by pytest-asyncio."""
    plain: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    return (plain if item.path.name in NETWORK else {}) | {"uvloop": uvloop.new_event_loop}
