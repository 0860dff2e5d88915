"""Names of versions."""

import pytest

from rocketbroker.client.mq_version import V4_9_3, V5_0_0_SNAPSHOT, version_desc


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (513, "V5_5_0"),
        (V4_9_3, "V4_9_3"),
        (V5_0_0_SNAPSHOT, "V5_0_0_SNAPSHOT"),
        (413, "V5_0_0"),
        (512, "V5_5_0_SNAPSHOT"),
        (195, "V3_9_1"),
        (611, "V5_9_9"),
        (9999, "V5_9_9"),
        (63, "VERSION_63"),
    ],
)
def test_a_number_has_a_name(ordinal: int, name: str):
    assert version_desc(ordinal) == name
