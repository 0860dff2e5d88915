"""Every code of administration has a call."""

import re
from pathlib import Path

from rocketbroker.client import admin_client

SOURCES = Path(admin_client.__file__).parent
CODES = Path(__file__).parents[3] / "docs" / "reference" / "request-codes.md"


def test_each_administration_code_has_a_call():
    served = set(re.findall(r"^\| \d+ \| (\w+) \| administration \|", CODES.read_text(), re.MULTILINE))
    texts = "".join(path.read_text() for path in SOURCES.glob("admin_*.py"))
    called = set(re.findall(r"RequestCode\.(\w+)", texts))
    # A tool's commit of offsets is `commit_offset` of a consumer.
    assert len(served) > 40
    assert served - called == set()
