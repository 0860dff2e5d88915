"""Names that metrics give to clients."""

import pytest

from rocketbroker.metrics.broker_metrics import version_name


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (513, "v5_5_0"),
        (512, "v5_5_0_snapshot"),
        (413, "v5_0_0"),
        (401, "v4_9_4"),
        (611, "v5_9_9"),
        (0, "0"),
        (-1, "-1"),
        (9999, "9999"),
    ],
)
def test_a_version_has_rocketmqs_name(ordinal: int, name: str):
    assert version_name(ordinal) == name
