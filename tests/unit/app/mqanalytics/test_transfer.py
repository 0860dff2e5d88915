"""Output of `mqanalytics export`, and exit of `replay` when not all was sent; without Spark and without a broker."""

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from rocketbroker.analytics.jobs.replay import Replayed
from rocketbroker.analytics.jobs.scope import NotRead
from rocketbroker.app.mqanalytics import transfer
from rocketbroker.app.mqanalytics.transfer import ended


def test_a_replay_that_ends_early_says_what_was_sent_and_where_to_continue(capsys: pytest.CaptureFixture[str]) -> None:
    done = Replayed(Counter({"T": 1200}), Counter(), "the export cannot be read: a file is gone", 1_795_255_162_876)
    with pytest.raises(typer.Exit) as raised:
        ended(done, sent=True, as_json=False)
    printed = capsys.readouterr()
    assert raised.value.exit_code == 1
    assert printed.out == "T: 1,200 sent\n1,200 messages sent\n"
    assert printed.err == (
        "mqanalytics: the export cannot be read: a file is gone; resume with --since 1795255162876\n"
    )


def test_a_replay_that_sent_nothing_has_nothing_to_continue_from(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        ended(Replayed(failure="T: no connection"), sent=True, as_json=True)
    assert capsys.readouterr().err == "mqanalytics: T: no connection; nothing was sent\n"


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("form", ["parquet", "jsonl", "delta"])
def test_an_export_prints_its_target_without_credentials(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str, as_json: bool
) -> None:
    scope = SimpleNamespace(messages=lambda: None, not_read=lambda: NotRead(0, 0))
    monkeypatch.setattr(transfer, "job_scope", lambda *_: nullcontext(scope))
    monkeypatch.setattr("rocketbroker.analytics.jobs.export.export", lambda *_, **__: 7)
    (tmp_path / "commitlog").mkdir()
    target = "s3://KEY:SECRET@bucket/x?endpoint_override=host"
    transfer.export([str(tmp_path)], target, form, as_json=as_json)
    printed = capsys.readouterr().out
    assert "SECRET" not in printed
    assert "s3://bucket/x" in printed
    assert "7" in printed
