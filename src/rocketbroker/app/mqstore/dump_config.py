"""``mqstore dump checkpoint`` and ``mqstore dump config``: flush state and configuration tables of a store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketbroker.app.mqstore.rows import print_rows
from rocketbroker.app.mqstore.running import AsJson, ConfigFile, StoreDir, reading_a_store, store_config
from rocketbroker.app.terminal import print_json, say
from rocketbroker.audit.store_audit import read_state
from rocketbroker.codec.storefile.checkpoint_layout import decode_checkpoint
from rocketbroker.codec.storefile.config_tables import loads_config
from rocketbroker.common.errors import CodecError, StoreError


def checkpoint(directory: StoreDir, config_file: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show the checkpoint and whether the store was stopped cleanly."""
    with reading_a_store():
        config = store_config(directory, config_file)
        state = read_state(config)
        found = decode_checkpoint(_read(config.checkpoint_path))
        row = {
            "physicMsgTimestamp": found.physic_msg_timestamp,
            "logicsMsgTimestamp": found.logics_msg_timestamp,
            "indexMsgTimestamp": found.index_msg_timestamp,
            "masterFlushedOffset": found.master_flushed_offset,
            "confirmPhyOffset": found.confirm_phy_offset,
            "logicsPhysicalOffset": found.logics_physical_offset,
            "cleanStop": not state.unclean,
            "lockedBy": list(state.holders),
        }
        print_rows([row], as_json=as_json)


def config(
    directory: StoreDir,
    config_file: ConfigFile = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="NAME", help="Show this table only, such as topics.json.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the tables of config/ as standard JSON."""
    with reading_a_store():
        folder = store_config(directory, config_file).config_dir
        for path, table in _tables(folder, file):
            if as_json:
                print_rows([{"file": path.name, "table": table}], as_json=True)
            else:
                say(f"{path.name}:")
                print_json(table)


def _tables(folder: Path, name: str | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    paths = [folder / name] if name is not None else sorted(folder.glob("*.json"))
    for path in paths:
        try:
            yield path, _plain(loads_config(_read(path)))
        except CodecError as error:
            raise StoreError(f"{path} is damaged: {error}") from error


def _plain(table: dict[Any, Any]) -> dict[str, Any]:
    """Return the table with its integer keys as text, as JSON requires."""
    return {str(key): _plain(value) if isinstance(value, dict) else value for key, value in table.items()}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
