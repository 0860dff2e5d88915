"""The key-value configuration and its file."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rocketbroker.common.atomic_file import backup_of
from rocketbroker.common.errors import ConfigError
from rocketbroker.namesrv.kv_config_manager import KVConfigManager


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def stored(path: Path) -> object:
    return json.loads(path.read_bytes())


def is_stored(path: Path) -> bool:
    return path.exists()


def damage(path: Path) -> None:
    path.write_bytes(b"{")


async def test_values_are_on_disk_when_put_returns(path: Path, executor: ThreadPoolExecutor) -> None:
    manager = KVConfigManager(str(path), executor)
    manager.load()
    await manager.put("ns", "k", "v")
    assert stored(path) == {"configTable": {"ns": {"k": "v"}}}
    await manager.put("ns", "k", "w")
    assert manager.get("ns", "k") == "w"
    assert stored(path) == {"configTable": {"ns": {"k": "w"}}}


async def test_many_puts_at_once_leave_all_of_them(path: Path, executor: ThreadPoolExecutor) -> None:
    manager = KVConfigManager(str(path), executor)
    await asyncio.gather(*(manager.put("ns", f"k{number}", "v") for number in range(20)))
    assert stored(path) == {"configTable": {"ns": {f"k{number}": "v" for number in range(20)}}}


async def test_a_namespace_outlives_its_last_key(path: Path, executor: ThreadPoolExecutor) -> None:
    manager = KVConfigManager(str(path), executor)
    await manager.put("ns", "k", "v")
    await manager.delete("ns", "k")
    assert manager.get("ns", "k") is None
    assert manager.encoded_namespace("ns") == b'{"table":{}}'
    assert stored(path) == {"configTable": {"ns": {}}}


async def test_deleting_what_is_not_there_writes_nothing(path: Path, executor: ThreadPoolExecutor) -> None:
    manager = KVConfigManager(str(path), executor)
    await manager.delete("ns", "k")
    assert not is_stored(path)
    assert manager.encoded_namespace("ns") is None


async def test_what_was_put_is_loaded_again(path: Path, executor: ThreadPoolExecutor) -> None:
    await KVConfigManager(str(path), executor).put("ns", "k", "v")
    manager = KVConfigManager(str(path), executor)
    manager.load()
    assert manager.encoded_namespace("ns") == b'{"table":{"k":"v"}}'


@pytest.mark.parametrize("damage", [damage, Path.unlink])
async def test_the_backup_is_loaded_for_a_lost_file_and_not_damaged_by_the_next_write(
    path: Path, executor: ThreadPoolExecutor, damage: Callable[[Path], None]
) -> None:
    manager = KVConfigManager(str(path), executor)
    await manager.put("ns", "k", "v")
    await manager.put("ns", "k", "w")
    damage(path)
    again = KVConfigManager(str(path), executor)
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
    with pytest.raises(ConfigError, match=r"kvConfig\.json is damaged: .*\(kvConfigPath\): .* is wanted"):
        KVConfigManager(str(path), executor).load()


def test_a_file_that_cannot_be_read_is_an_error(path: Path, executor: ThreadPoolExecutor) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        KVConfigManager(str(path), executor).load()


async def test_a_disk_that_takes_nothing_is_reported_and_the_value_holds(
    path: Path, executor: ThreadPoolExecutor
) -> None:
    path.parent.write_bytes(b"a file where the folder should be")
    manager = KVConfigManager(str(path), executor)
    with pytest.raises(OSError, match="namesrv"):
        await manager.put("ns", "k", "v")
    assert manager.get("ns", "k") == "v"
