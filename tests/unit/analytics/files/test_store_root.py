"""The place of a store."""

import pickle
from pathlib import Path

import pytest

from rocketbroker.analytics.files.store_root import StoreRoot, place_of
from rocketbroker.common.errors import ConfigError


@pytest.mark.parametrize(
    ("target", "uri"),
    [
        ("/out/a,b*", "/out/a,b*"),
        (Path("/out/x=y"), "/out/x=y"),
        ("file:///out/a%20b", "/out/a b"),
        ("s3a://bucket/out?region=x", "s3://bucket/out?region=x"),
    ],
)
def test_a_target_is_one_place_as_it_is_named(target: str | Path, uri: str) -> None:
    assert place_of(target) == StoreRoot("", uri)
    with pytest.raises(ConfigError, match="names no store"):
        place_of("s3://")


def test_credentials_are_never_shown() -> None:
    root = StoreRoot("b", "s3://AKIA:s3cret@bucket/p?endpoint_override=h&token=t0p")
    assert repr(root) == "StoreRoot(broker='b', uri='s3://bucket/p')"
    assert root.shown == "s3://bucket/p"
    assert StoreRoot("b", "abfs://container@account.dfs/p").shown == "abfs://container@account.dfs/p"
    assert StoreRoot("b", "/a/b").shown == "/a/b"


def test_a_root_can_be_sent_to_another_process() -> None:
    root = StoreRoot("b", "s3://AKIA:s3cret@bucket/p")
    assert pickle.loads(pickle.dumps(root)) == root
