"""Pairs by namespace, with what they take once they are encoded."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.common.atomic_file import backup_of, replace_contents
from rocketbroker.common.config import NamesrvConfig
from rocketbroker.common.errors import BrokerResponseError, ConfigError
from rocketbroker.namesrv.kv_config_manager import KVConfigManager, KVNamespaces

names = st.sampled_from(["a", "b", "\u00e9", "\x01"])
changes = st.lists(st.tuples(names, names, st.none() | st.text(st.characters(codec="utf-8"), max_size=5)), max_size=30)


@given(changes)
def test_sizes_and_numbers_are_true_after_any_changes(done: list[tuple[str, str, str | None]]) -> None:
    table = KVNamespaces()
    for namespace, key, value in done:
        if value is None:
            table.delete(namespace, key)
        else:
            table.put(namespace, key, value)
    again = KVNamespaces(table.as_dict())
    assert (table.entries, table.size) == (again.entries, again.size)
    for namespace, pairs in table.as_dict().items():
        assert table.entries_of(namespace) == len(pairs)
        # {"table":{}}, and a comma less than pairs
        assert table.size_of(namespace) == len(table.encoded(namespace)) - 12 + (1 if pairs else 0)


@given(changes, st.integers(0, 60))
def test_a_part_is_never_over_its_limit_and_names_all_that_is_left_out(
    done: list[tuple[str, str, str | None]], most: int
) -> None:
    table = KVNamespaces({"a": {}})
    for _, key, value in done:
        table.put("a", key, value or "")
    body, left_out = table.encoded_part("a", most)
    assert len(body) <= most + 12
    assert len(set(left_out)) == len(left_out)
    assert bool(left_out) == (table.size_of("a") > most)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def manager_of(path: Path, executor: ThreadPoolExecutor, **settings: object) -> KVConfigManager:
    return KVConfigManager(NamesrvConfig.model_validate({"kvConfigPath": str(path), **settings}), executor)


def stored(path: Path) -> object:
    return json.loads(path.read_bytes())


def store(path: Path, content: object) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps(content))


def is_stored(path: Path) -> bool:
    return path.exists()


def damage(path: Path) -> None:
    path.write_bytes(b"{")


async def test_values_are_on_disk_when_put_returns(path: Path, executor: ThreadPoolExecutor) -> None:
    manager = manager_of(path, executor)
    manager.load()
    await manager.put("ns", "k", "v")
    assert stored(path) == {"configTable": {"ns": {"k": "v"}}}
    await manager.put("ns", "k", "w")
    assert manager.get("ns", "k") == "w"
    assert stored(path) == {"configTable": {"ns": {"k": "w"}}}


async def test_many_puts_at_once_leave_all_of_them(path: Path, executor: ThreadPoolExecutor) -> None:
    manager = manager_of(path, executor)
    await asyncio.gather(*(manager.put("ns", f"k{number}", "v") for number in range(20)))
    assert stored(path) == {"configTable": {"ns": {f"k{number}": "v" for number in range(20)}}}


async def test_a_namespace_outlives_its_last_key(path: Path, executor: ThreadPoolExecutor) -> None:
    manager = manager_of(path, executor)
    await manager.put("ns", "k", "v")
    await manager.delete("ns", "k")
    assert manager.get("ns", "k") is None
    assert manager.encoded_namespace("ns") == b'{"table":{}}'
    assert stored(path) == {"configTable": {"ns": {}}}


async def test_deleting_what_is_not_there_writes_nothing(path: Path, executor: ThreadPoolExecutor) -> None:
    manager = manager_of(path, executor)
    await manager.delete("ns", "k")
    assert not is_stored(path)
    assert manager.encoded_namespace("ns") is None


async def test_stored_values_are_loaded_again(path: Path, executor: ThreadPoolExecutor) -> None:
    await manager_of(path, executor).put("ns", "k", "v")
    manager = manager_of(path, executor)
    manager.load()
    assert manager.encoded_namespace("ns") == b'{"table":{"k":"v"}}'


@pytest.mark.parametrize("damage", [damage, Path.unlink])
async def test_the_backup_is_loaded_for_a_lost_file_and_not_damaged_by_the_next_write(
    path: Path, executor: ThreadPoolExecutor, damage: Callable[[Path], None]
) -> None:
    manager = manager_of(path, executor)
    await manager.put("ns", "k", "v")
    await manager.put("ns", "k", "w")
    damage(path)
    again = manager_of(path, executor)
    again.load()
    assert again.get("ns", "k") == "v"
    await again.put("ns", "k", "x")
    assert json.loads(backup_of(path).read_bytes()) == {"configTable": {"ns": {"k": "v"}}}


@pytest.mark.parametrize(
    "content", [b"{}", b"{", b"[]", b"[" * 5000, bytes(9), b'{"configTable":{"ns":7}}', b'{"configTable":"\xff"}']
)
def test_a_damaged_file_without_backup_is_an_error(path: Path, executor: ThreadPoolExecutor, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"kvConfig\.json is damaged: .*\(kvConfigPath\): .* expected {"):
        manager_of(path, executor).load()


def test_a_file_that_cannot_be_read_is_an_error(path: Path, executor: ThreadPoolExecutor) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        manager_of(path, executor).load()


async def test_a_disk_that_takes_nothing_is_reported_and_the_value_holds(
    path: Path, executor: ThreadPoolExecutor
) -> None:
    path.parent.write_bytes(b"a file where the folder should be")
    manager = manager_of(path, executor)
    with pytest.raises(OSError, match="namesrv"):
        await manager.put("ns", "k", "v")
    assert manager.get("ns", "k") == "v"


# -- limits


async def test_values_keys_and_bytes_are_bounded_and_a_refusal_names_the_setting(
    path: Path, executor: ThreadPoolExecutor
) -> None:
    limits = {"maxKvEntriesPerNamespace": 3, "maxKvEntries": 7, "maxKvValueSize": 3000}
    manager = manager_of(path, executor, maxKvNamespaceSize=4096, maxKvConfigSize=6000, **limits)
    for key in ("a", "b", "c"):
        await manager.put("n1", key, "v")
    before = stored(path)
    for namespace, key, value, setting in (
        ("n1", "d", "v", "maxKvEntriesPerNamespace: 4 keys of the namespace exceed the limit of 3"),
        ("n1", "a", "x" * 2999, "maxKvValueSize: 3,001 bytes of the value exceed the limit of 3,000"),
        ("n1", "a", "\x01" * 600, "maxKvValueSize: 3,602 bytes"),
    ):
        with pytest.raises(BrokerResponseError, match=setting):
            await manager.put(namespace, key, value)
    assert stored(path) == before
    await manager.put("n1", "a", "x" * 2990)
    with pytest.raises(BrokerResponseError, match=r"maxKvNamespaceSize: .* raise maxKvNamespaceSize"):
        await manager.put("n1", "b", "x" * 2990)
    await manager.put("n2", "a", "x" * 2000)
    with pytest.raises(BrokerResponseError, match=r"maxKvConfigSize: .* bytes of all namespaces"):
        await manager.put("n2", "b", "x" * 2000)
    await manager.put("n2", "b", "v")
    with pytest.raises(BrokerResponseError, match="maxKvEntries: 9 keys and namespaces exceed the limit of 7"):
        await manager.put("n3", "a", "v")


async def test_deleted_entries_make_room_again(path: Path, executor: ThreadPoolExecutor) -> None:
    manager = manager_of(path, executor, maxKvEntries=2, maxKvNamespaceSize=4096, maxKvValueSize=4096)
    for number in range(5):
        await manager.put("ns", f"k{number}", "x" * 4000)
        await manager.delete("ns", f"k{number}")
    assert stored(path) == {"configTable": {"ns": {}}}


async def test_the_registration_s_answer_is_bounded_whatever_the_file_holds(
    path: Path, executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    table = {"Large": "x" * 5000, "T": "broker-a:2", "Huge": "x" * 20_000_000}
    store(path, {"configTable": {"ORDER_TOPIC_CONFIG": table}})
    manager = manager_of(path, executor, maxKvNamespaceSize=4096)
    manager.load()
    assert manager.encoded_order_topics() == b'{"table":{"T":"broker-a:2"}}'
    assert "brokers do not learn of 2 of its 3 topics, such as Large, Huge" in caplog.text
    assert manager.encoded_order_topics() is manager.encoded_order_topics()
    assert (manager.order_topic_conf("T"), manager.order_topic_conf("Huge")) == ("broker-a:2", None)
    with pytest.raises(
        BrokerResponseError, match=r"have 20,005,\d\d\d bytes, more than a frame can carry; delete some"
    ):
        manager.encoded_namespace("ORDER_TOPIC_CONFIG")
    await manager.put("ORDER_TOPIC_CONFIG", "T", "b:2")
    await manager.delete("ORDER_TOPIC_CONFIG", "Huge")
    await manager.delete("ORDER_TOPIC_CONFIG", "Large")
    assert manager.encoded_order_topics() == manager.encoded_namespace("ORDER_TOPIC_CONFIG") == b'{"table":{"T":"b:2"}}'


async def test_changes_that_come_during_a_write_share_the_next_one(
    path: Path, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []

    def count(target: Path, data: bytes) -> None:
        writes.append(len(data))
        replace_contents(target, data)

    monkeypatch.setattr("rocketbroker.namesrv.kv_config_manager.replace_contents", count)
    manager = manager_of(path, executor)
    await asyncio.gather(*(manager.put("ns", f"k{number}", "v") for number in range(200)))
    assert len(writes) == 2
    assert stored(path) == {"configTable": {"ns": {f"k{number}": "v" for number in range(200)}}}
