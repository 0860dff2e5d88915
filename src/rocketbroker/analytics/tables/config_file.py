"""Files of ``config/``, or their backups, as a broker reads them (org.apache.rocketmq.common.ConfigManager.load)."""

import logging
from functools import partial
from typing import TypeVar

from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.storefile.config_tables import BACKUP, MAX_CONFIG_SIZE, decode_table
from rocketbroker.common.atomic_file import both_faults, parsed
from rocketbroker.common.errors import StoreError

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=RemotingSerializable)


def load_config_file(folder: StoreFolder, name: str, kind: type[T]) -> T:
    """Read ``config/<name>`` as ``kind``.

    If the file is missing, empty or damaged, log a warning and read its ``.bak``. If neither exists, log that too and
    return an empty table, as a broker would use.

    Raises:
        StoreError: file or backup exists, but neither can be read.
    """
    found, damage = _read(folder, name, kind)
    if found is not None:
        return found
    path = folder.name_of(f"config/{name}")
    backup, backup_damage = _read(folder, name + BACKUP, kind)
    if backup is not None:
        logger.warning("%s; its backup %s%s is read instead", damage or f"{path} is missing", name, BACKUP)
        return backup
    if damage or backup_damage:
        faults = both_faults(path, damage, name + BACKUP, backup_damage)
        raise StoreError(f"{faults}: repair the file, or let the broker write it again")
    logger.warning("%s and its backup are missing; its table is empty", path)
    return kind()


def _read(folder: StoreFolder, name: str, kind: type[T]) -> tuple[T | None, str]:
    """Return the table in a file, or the fault of the file, "" if it does not exist."""
    data = folder.read_if_there(f"config/{name}", 0, MAX_CONFIG_SIZE + 1)  # the decoder rejects a longer file
    if data is None:
        return None, ""
    return parsed(folder.name_of(f"config/{name}"), data, partial(decode_table, name, kind=kind))
