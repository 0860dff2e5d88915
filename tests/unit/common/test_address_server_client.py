"""Answers of address servers."""

import sys

import pytest

from rocketbroker.common.address_server_client import fetch_name_servers, parse_addresses
from rocketbroker.common.errors import ConfigError, RemotingError


@pytest.mark.parametrize(
    ("answer", "addresses"),
    [
        (b"", []),
        (b" 10.0.0.1:9876 \n", ["10.0.0.1:9876"]),
        (b"a:1;b:65535;", ["a:1", "b:65535"]),
        (b"[::1]:9876", ["[::1]:9876"]),
    ],
)
def test_parse_addresses(answer, addresses):
    assert parse_addresses(answer) == addresses


@pytest.mark.parametrize(
    "answer", [b"<html>", b"a", b"a:", b":1", b"a:0", b"a:65536", b"a:1;b", b"a:\xb2", b"a:1234567890"]
)
def test_a_value_that_is_not_a_list_is_named(answer):
    with pytest.raises(ValueError, match="instead of host:port;host:port"):
        parse_addresses(answer)


async def test_a_server_that_does_not_answer_is_named():
    with pytest.raises(RemotingError, match=r"address server http://127.0.0.1:1/rocketmq/nsaddr"):
        await fetch_name_servers("http://127.0.0.1:1/rocketmq/nsaddr")


async def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ConfigError, match=r"address server http://ns needs .*: pip install 'rocketbroker\[http\]'"):
        await fetch_name_servers("http://ns")
