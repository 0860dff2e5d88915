"""Files of private keys: who else may read them."""

import os
from pathlib import Path
from typing import Final

from rocketbroker.common.errors import ConfigError

_OTHERS: Final = 0o077
# The group may read a key that root owns: it is the group of the service, as with volumes of Kubernetes.
_GROUP_READS: Final = 0o040


def check_key_mode(name: str, path: Path) -> None:
    """Check that other users cannot read a key.

    Args:
        name: the setting that names it.
        path: the file.

    Raises:
        ConfigError: They can.
        OSError: The file cannot be looked at.
    """
    status = path.stat()
    shared = status.st_mode & _OTHERS
    if os.name != "posix" or not shared or (shared == _GROUP_READS and status.st_uid == 0):
        return
    raise ConfigError(
        f"{name}: other users may use {path} (mode {status.st_mode & 0o777:04o}); run chmod 600 on it, or let root own "
        "it with mode 0640 and the group of the service"
    )
