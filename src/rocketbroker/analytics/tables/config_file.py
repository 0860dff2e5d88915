"""Files of ``config/``, or their backups, as a broker reads them (org.apache.rocketmq.common.ConfigManager.load)."""

import logging
from typing import Final, TypeVar

from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.storefile.config_json import MAX_CONFIG_SIZE
from rocketbroker.codec.storefile.config_tables import BACKUP, decode_table
from rocketbroker.common.errors import CodecError, StoreError

_FOLDER: Final = "config"

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=RemotingSerializable)


def load_config_file(folder: StoreFolder, name: str, kind: type[T]) -> T:
    """Read ``config/<name>``.

    If the file is missing, empty or damaged, a warning is logged and its ``.bak`` is read. If neither exists, the table
    is empty, as it is for a broker; this is logged as well.

    Args:
        folder: the store.
        name: the file's name.
        kind: the class to decode it to.

    Raises:
        StoreError: file or backup exists, but neither can be read.
    """
    found, damage = _read(folder, name, kind)
    if found is not None:
        return found
    path = folder.name_of(f"{_FOLDER}/{name}")
    backup, backup_damage = _read(folder, name + BACKUP, kind)
    if backup is not None:
        logger.warning("%s; its backup %s%s is read instead", damage or f"{path} is missing", name, BACKUP)
        return backup
    if damage or backup_damage:
        raise StoreError(
            f"{damage or f'{path} is missing'}; {backup_damage or f'there is no {name}{BACKUP}'}: "
            "repair the file, or have the broker write it again"
        )
    logger.warning("%s is missing, and so is its backup: its table is empty", path)
    return kind()


def _read(folder: StoreFolder, name: str, kind: type[T]) -> tuple[T | None, str]:
    """Return the table in a file, or the fault of the file, "" if it does not exist."""
    path = f"{_FOLDER}/{name}"
    data = folder.read_if_there(path, 0, MAX_CONFIG_SIZE + 1)  # the decoder rejects a longer file
    if data is None:
        return None, ""
    if not data.strip():
        return None, f"{folder.name_of(path)} is empty"
    try:
        return decode_table(name, data, kind), ""
    except CodecError as error:
        return None, f"{folder.name_of(path)} is damaged: {error}"
