"""The store directories recorded from Apache RocketMQ 5.5.0, in tests/golden/store.

``clean`` was stopped in order, ``kill9`` by a kill; broker.conf says which sizes the files have.
"""

import json
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "golden" / "store"
NAMES = ("clean", "kill9")
COMMIT_LOG_FILE_SIZE = 65536
MAX_HASH_SLOT_NUM = 50
MAX_INDEX_NUM = 200


@cache
def manifest(name: str) -> dict[str, Any]:
    """Return the manifest of store ``name``: its messages, queues, index entries and checkpoint."""
    found: dict[str, Any] = json.loads((GOLDEN / f"manifest-{name}.json").read_bytes())
    return found


@cache
def files(name: str) -> dict[str, bytes]:
    """Return the content of every file of store ``name`` by its path in the store, such as ``commitlog/0…0``."""
    with zipfile.ZipFile(GOLDEN / f"store-{name}.zip") as archive:
        return {info.filename.removeprefix("store/"): archive.read(info) for info in archive.infolist()}


def unpack(name: str, into: Path) -> Path:
    """Unpack store ``name`` below ``into``; return its directory."""
    with zipfile.ZipFile(GOLDEN / f"store-{name}.zip") as archive:
        archive.extractall(into)
    return into / "store"


@cache
def records(name: str) -> tuple[tuple[int, bytes], ...]:
    """Return every record of store ``name`` as commit-log offset and bytes, cut where the manifest says."""
    logs = {int(path[-20:]): data for path, data in files(name).items() if path.startswith("commitlog/")}
    found = []
    for message in manifest(name)["messages"]:
        base = message["phyOffset"] - message["phyOffset"] % COMMIT_LOG_FILE_SIZE
        at = message["phyOffset"] - base
        found.append((message["phyOffset"], logs[base][at : at + message["size"]]))
    return tuple(found)
