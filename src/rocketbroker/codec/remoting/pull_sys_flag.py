"""Bits of ``sysFlag`` in a PULL_MESSAGE request (org.apache.rocketmq.common.sysflag.PullSysFlag)."""

from typing import Final

# The pull carries an offset to commit.
FLAG_COMMIT_OFFSET: Final = 0x1
# The pull may be held until a message arrives.
FLAG_SUSPEND: Final = 0x2
# The pull carries its subscription, which replaces that of the group's heartbeats.
FLAG_SUBSCRIPTION: Final = 0x4
# A filter server filters (3.x and 4.x), not the consumer itself.
FLAG_CLASS_FILTER: Final = 0x8
