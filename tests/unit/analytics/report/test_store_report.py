from pathlib import Path

import pytest

from rocketbroker.analytics.report.store_report import lead, write_report
from rocketbroker.common.errors import StoreError
from tests.support.report_facts import no_facts, store_facts


def test_page_and_pictures_are_written(tmp_path: Path):
    output = tmp_path / "report.html"
    output.write_text("old")
    written = write_report(store_facts(), output, tmp_path / "png")
    assert written[0] == output
    assert output.read_text().startswith("<!doctype html>")
    assert output.stat().st_mode & 0o777 == 0o644
    assert sorted(written[1:]) == sorted((tmp_path / "png").iterdir())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_without_a_folder_for_them_there_are_no_pictures(tmp_path: Path):
    assert write_report(store_facts(), tmp_path / "report.html") == [tmp_path / "report.html"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path):
    with pytest.raises(StoreError, match=r"cannot write .*missing.*: No such file or directory"):
        write_report(store_facts(), tmp_path / "missing" / "report.html")


def test_the_lead_says_which_stores_and_which_time():
    assert lead(store_facts()) == "a: 2026-11-21 09:57:00 to 2026-11-21 10:02:00 UTC"
    assert lead(store_facts(asked="only topic orders")).endswith("UTC; only topic orders")
    assert lead(no_facts()) == "a: no messages"
