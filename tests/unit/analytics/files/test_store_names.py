"""Naming stores."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketbroker.analytics.files import store_names
from rocketbroker.analytics.files.store_names import store_roots
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.common.errors import ConfigError


def named(stores) -> list[tuple[str, str]]:
    return [(root.broker, root.uri) for root in store_roots(stores)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/data/store", [("store", "/data/store")]),
        (Path("/data/a,b=c"), [("a,b=c", "/data/a,b=c")]),
        ("broker-a=/data/store", [("broker-a", "/data/store")]),
        ("a=/1/store, b=/2/store", [("a", "/1/store"), ("b", "/2/store")]),
        (["/data/x,y"], [("x,y", "/data/x,y")]),
        ("/data/store/commitlog", [("store", "/data/store/commitlog")]),
        (["/a/store", "b=/b/store", "/c/other"], [("store", "/a/store"), ("b", "/b/store"), ("other", "/c/other")]),
        ("file:///data/a%20b", [("a b", "/data/a b")]),
        ("file://localhost/data/s", [("s", "/data/s")]),
        ("s3://bucket/stores/b1", [("b1", "s3://bucket/stores/b1")]),
        (
            "m=s3://key:secret@bucket/b1?endpoint_override=h:1&scheme=http",
            [("m", "s3://key:secret@bucket/b1?endpoint_override=h:1&scheme=http")],
        ),
        ("s3://bucket", [("bucket", "s3://bucket")]),
        ("s3a://bucket/b1", [("b1", "s3://bucket/b1")]),
        ("s3://bucket/x?region=a=b", [("x", "s3://bucket/x?region=a=b")]),
        ("s3://k:s*@bucket/x%2A?region=*", [("x%2A", "s3://k:s*@bucket/x%2A?region=*")]),
        ("hdfs://[::1]:9000/x", [("x", "hdfs://[::1]:9000/x")]),
        (StoreRoot("b", "/x"), [("b", "/x")]),
        ([StoreRoot("b", "/x"), "/y"], [("b", "/x"), ("y", "/y")]),
        ("/", [("store", "/")]),
    ],
)
def test_places_and_names(given, expected: list[tuple[str, str]]) -> None:
    assert named(given) == expected


def test_a_relative_path_starts_at_the_callers_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert named("data/store") == [("store", f"{tmp_path}/data/store")]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "no store is named; give a directory, an address or NAME=PLACE"),
        ("", "'' names no store"),
        ("/a,,/b", "'' names no store"),
        (["a= "], "'a= ' names no store"),
        ("/a,/a", "the store /a is named twice, so its messages would count twice"),
        (["x=/a", "y=/a"], "the store /a is named twice"),
        (["s3://b/x?region=1", "s3://b/x?region=2"], "the store s3://b/x is named twice"),
        (["x=/a", "x=/b"], "/a and /b are both called x; give each broker a name of its own, such as x-2=/b"),
        (["/a/store", "/b/store"], "/a/store and /b/store are both called store"),
        (["/a", "/a/commitlog"], "/a and /a/commitlog are one store, so its messages would count twice"),
        (["x=/a/b/../c", "y=/a/c/"], "/a/b/../c and /a/c are one store"),
        (["s3://b/x/commitlog?region=1", "s3://b/x"], "s3://b/x/commitlog and s3://b/x are one store"),
        (["gs://b/s", "gcs://b/s"], "gs://b/s and gcs://b/s are one store"),
        (["x=abfs://c@account.dfs/s", "y=abfss://c@account.dfs/s"], "are one store"),
        (["x=s3://b//store", "y=s3://b/store/"], "are one store"),
        (["x=s3://b/dc=eu/store", "y=s3://b/dc%3Deu/store"], "the store s3://b/dc=eu/store is named twice"),
        (["x=S3://b/store", "y=s3://b/store"], "the store s3://b/store is named twice"),
        (["x=s3://b/s?endpoint_override=http://h:1/", "y=s3://b/s?endpoint_override=H:1"], "is named twice"),
        ("file://host/a", "use file:///path"),
        ("s3://[key:secret@b/x", "an address that begins with s3:// is invalid: Invalid IPv6 URL"),
        ("s3://", "s3:// names no store; add a bucket or host, and a folder"),
        ("s3://k:secret@b*/store", "s3://b*/store: a bucket or host cannot be a pattern; name it"),
        ("n=s3://k:secret@b/*/store?region=1", "n=s3://b/*/store: a pattern names its stores itself; remove n="),
        ("a=hdfs:///", "hdfs:// names no store"),
        ("/a\0b", r"'/a\x00b' is not a directory"),
    ],
)
def test_an_invalid_value_is_rejected(given, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        store_roots(given)
    assert message in str(error.value)


def test_buckets_of_one_name_at_two_hosts_are_two_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    here, there = (f"s3://b/store?endpoint_override={host}:9000" for host in ("here", "there"))
    assert [uri for _, uri in named([f"x={here}", f"y={there}"])] == [here, there]
    assert len(named([f"x={here}", "y=s3://b/store"])) == 2
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://here:9000")
    with pytest.raises(ConfigError, match="is named twice"):
        store_roots([f"x={here}", "y=s3://b/store"])


def test_a_pattern_names_its_stores_by_what_it_matches(tmp_path: Path) -> None:
    for name in ("b", "a", "[c]"):
        (tmp_path / name / "store").mkdir(parents=True)
    assert named(f"{tmp_path}/[ab]/store") == [(name, f"{tmp_path}/{name}/store") for name in ("a", "b")]
    assert named(f"{tmp_path}/*/store,z=/z")[-1] == ("z", "/z")
    assert named(f"{tmp_path}/[c]/store") == [("store", f"{tmp_path}/[c]/store")]
    (tmp_path / "README").touch()
    assert [name for name, _ in named(f"{tmp_path}/*")] == ["[c]", "a", "b"]
    assert named(tmp_path / "gone[1]") == [("gone[1]", f"{tmp_path}/gone[1]")]
    with pytest.raises(ConfigError, match="matches no directory"):
        store_roots(f"{tmp_path}/x*/store")
    with pytest.raises(ConfigError, match="remove n="):
        store_roots(f"n={tmp_path}/*/store")


def test_quoted_wildcards_of_an_address_are_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["[a]1", "a1", "*1", "x1", "?1"]
    folder = SimpleNamespace(folders=lambda _: names, is_folder=lambda _: True)
    monkeypatch.setattr(store_names, "open_folder", lambda _: folder)
    for pattern, expected in (("%5Ba%5D*", ["[a]1"]), ("[a]*", ["a1"]), ("%2A[0-9]", ["*1"]), ("%3f*", ["?1"])):
        assert [name for name, _ in named(f"s3://b/{pattern}/s")] == expected, pattern


def test_a_link_to_a_store_is_the_same_store(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with pytest.raises(ConfigError, match="are one store, so its messages would count twice"):
        store_roots([tmp_path / "store", tmp_path / "link"])
