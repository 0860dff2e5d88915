"""Where a commit-log file ends."""

import pytest

from rocketbroker.codec.storefile.commit_log_layout import fits
from tests.support import golden_store


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_golden_records_went_where_they_fit(name: str) -> None:
    size = golden_store.COMMIT_LOG_FILE_SIZE
    records = golden_store.records(name)
    for offset, record in records:
        assert fits(len(record), size - (offset % size))


def test_the_record_after_the_golden_blank_did_not_fit_before_it() -> None:
    (blank,) = golden_store.manifest("clean")["blanks"]
    behind = dict(golden_store.records("clean"))[golden_store.COMMIT_LOG_FILE_SIZE]
    assert not fits(len(behind), blank["size"])


def test_eight_bytes_stay_for_the_blank() -> None:
    assert fits(92, 100)
    assert not fits(93, 100)
