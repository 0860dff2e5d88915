"""Permissions of topics and brokers (org.apache.rocketmq.common.constant.PermName)."""

from typing import Final

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
# The bit for reading in a group's forbidden operations.
INDEX_PERM_READ: Final = 2
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE
