"""Output of `mqanalytics export`, and exit of `replay` when not all was sent; without Spark and without a broker."""

import json
import re
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from rocketbroker.analytics.columns.decode_report import NotRead
from rocketbroker.analytics.jobs.exported_files import ExportState
from rocketbroker.analytics.jobs.replay import Replayed
from rocketbroker.app.mqanalytics import transfer
from rocketbroker.app.mqanalytics.cli import app
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


def test_joined_files_are_counted(tmp_path: Path) -> None:
    names = [f"part-{'0' * 32}-{number}-0.parquet" for number in range(3)]
    for number, name in enumerate(names):
        pq.write_table(pa.table({"broker": ["a"], "physical_offset": [number]}), tmp_path / name)
    state = ExportState("parquet", [], ["broker", "physical_offset"], names, {"a": 2})
    (tmp_path / "_export.json").write_bytes(msgspec.json.encode(state))
    printed = CliRunner().invoke(app, ["compact", str(tmp_path)])
    assert printed.exit_code == 0, printed.stderr
    assert re.fullmatch(rf"{tmp_path}: 3 files of [\d,]+ bytes joined to 1 of [\d,]+ bytes\n", printed.stdout)
    (joined,) = tmp_path.glob("part-*")
    assert pq.read_table(joined)["physical_offset"].to_pylist() == [0, 1, 2]
    again = CliRunner().invoke(app, ["compact", str(tmp_path)])
    assert again.stdout == f"{tmp_path}: no two small files in a folder\n"
    told = json.loads(CliRunner().invoke(app, ["compact", str(tmp_path), "--json"]).stdout)
    assert told == {
        "job": "compact", "to": str(tmp_path), "small": 0, "joined": 0, "bytesBefore": 0, "bytesAfter": 0
    }  # fmt: skip
    for size in ("big", "1025g", "999999999999g"):
        wrong = CliRunner().invoke(app, ["compact", str(tmp_path), "--file-size", size])
        assert (wrong.exit_code, f"--file-size is '{size}'" in wrong.stderr) == (2, True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").touch()
    for target in ("new", "other"):
        wrong = CliRunner().invoke(app, ["compact", str(tmp_path / target)])
        assert (wrong.exit_code, "name the folder of an export" in " ".join(wrong.stderr.split())) == (2, True)
