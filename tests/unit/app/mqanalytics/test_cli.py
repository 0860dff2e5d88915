"""The sub-commands and their options; what they do is tested where Spark runs, in tests/integration."""

from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from rocketbroker.analytics.jobs.job_list import JOBS
from rocketbroker.app.mqanalytics.cli import SUB_COMMANDS, app
from rocketbroker.common.errors import ConfigError
from tests.support.commit_log_writer import CommitLogWriter

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "jobs.md").read_text()


def test_help_lists_each_sub_command():
    told = CliRunner().invoke(app, ["--help"])

    assert told.exit_code == 0
    assert [name for name in SUB_COMMANDS if name not in told.stdout] == []


@pytest.mark.parametrize("name", SUB_COMMANDS)
def test_each_tells_its_options(name: str):
    told = CliRunner().invoke(app, [name, "-h"])

    assert told.exit_code == 0
    assert ("--json" in told.stdout) is (name not in {"report", "prepare"})


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_each_job_is_there_and_has_its_options(job):
    told = CliRunner().invoke(app, [job.name, "-h"])

    assert callable(job.load())
    assert [each.name for each in job.options if f"--{each.name}" not in told.stdout] == []
    assert "--since" in told.stdout


@pytest.mark.parametrize("name", SUB_COMMANDS)
def test_each_is_on_the_page(name: str):
    assert f"`mqanalytics {name}" in PAGE or f"$ mqanalytics {name}" in PAGE


@pytest.mark.parametrize("setting", ["master=local", "spark.master", "=1"])
def test_a_setting_that_is_none_of_spark_is_named(setting: str):
    told = CliRunner().invoke(app, ["--conf", setting, "count", "store"])

    assert told.exit_code == 2
    assert "give spark.NAME=VALUE" in " ".join(told.stderr.split())


def test_settings_of_spark_stand_before_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    asked: list[dict[str, str]] = []

    def session(_name: str, settings: dict[str, str]) -> NoReturn:
        asked.append(settings)
        raise ConfigError("no session is needed")

    monkeypatch.setattr("rocketbroker.analytics.spark.local_session.spark_session", session)
    CommitLogWriter(tmp_path).append_many(1)
    options = ["--master", "spark://h:1", "--conf", "spark.executor.memory=1g"]
    told = CliRunner().invoke(app, [*options, "sizes", str(tmp_path)])

    assert told.exit_code == 2, told.output
    compiler = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Xmn96m"}
    assert asked == [compiler | {"spark.master": "spark://h:1", "spark.executor.memory": "1g"}]

    CliRunner().invoke(app, ["--conf", "spark.driver.extraJavaOptions=-Dx=1", "sizes", str(tmp_path)])
    assert asked[1:] == [{"spark.driver.extraJavaOptions": "-Dx=1"}]
