"""Names of version numbers (org.apache.rocketmq.common.MQVersion).

Commands carry the ordinal of an enum. From V3_9_1 (ordinal 194, 195) on it counts without a gap: each version has a
SNAPSHOT, even, and a release, odd; after x.9.9 comes (x+1).0.0. The enum ends with V5_9_9.
"""

V4_9_3 = 399
V5_0_0_SNAPSHOT = 412
_FIRST_REGULAR = 194
_LAST = 611


def version_desc(ordinal: int) -> str:
    """Return ``V5_5_0`` for 513; a version before V3_9_1, whose order is irregular, is called by its number."""
    if ordinal < _FIRST_REGULAR:
        return f"VERSION_{ordinal}"
    number = (min(ordinal, _LAST) - 14) // 2 + 301
    suffix = "" if min(ordinal, _LAST) % 2 else "_SNAPSHOT"
    return f"V{number // 100}_{number // 10 % 10}_{number % 10}{suffix}"
