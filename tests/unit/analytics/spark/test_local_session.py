"""What a session of ours is started with; that it runs is tested in tests/integration/test_analytics.py."""

import gc
import io
import os
from pathlib import Path

import pytest

from rocketbroker.analytics.spark import local_session
from rocketbroker.analytics.spark.java_runtime import JavaRuntimeError
from rocketbroker.common.errors import ConfigError

VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS")


def test_settings_of_the_caller_win_and_java_options_join_ours() -> None:
    conf = local_session._conf("x", {"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-XX:+UseSerialGC"})
    assert conf.get("spark.ui.enabled") == "true"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    options = conf.get("spark.driver.extraJavaOptions")
    assert options is not None
    assert options.startswith('"-Dlog4j2.configurationFile=file:///')
    assert options.endswith(" -XX:+UseSerialGC")
    assert options.count("GC") == 1
    assert "IgnoreUnrecognizedVMOptions" not in options  # which options are wrong is not ours to hide


@pytest.fixture
def no_java_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def collectors(settings: dict[str, str]) -> int:
    """How many of them the session's Java options choose."""
    return str(local_session._conf("x", settings).get("spark.driver.extraJavaOptions")).count("GC")


@pytest.mark.usefixtures("no_java_options")
def test_our_collector_is_chosen_where_no_other_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+PrintGC -XX:-UseG1GC")
    assert "-XX:+UseParallelGC" in str(local_session._conf("x", {}).get("spark.driver.extraJavaOptions"))


@pytest.mark.usefixtures("no_java_options")
@pytest.mark.parametrize("name", VARIABLES)
def test_a_collector_that_a_variable_chooses_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "-Xmx1g -XX:+UseG1GC")
    assert collectors({}) == 0


@pytest.mark.usefixtures("no_java_options")
def test_a_collector_among_the_default_java_options_is_left_alone() -> None:
    assert collectors({"spark.driver.defaultJavaOptions": "-XX:+UseZGC"}) == 0


def test_the_environment_is_as_before_when_spark_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/before")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with local_session._environment({"JAVA_HOME": "/now", "SPARK_LOCAL_IP": "127.0.0.1"}):
        assert (os.environ["JAVA_HOME"], os.environ["SPARK_LOCAL_IP"]) == ("/now", "127.0.0.1")
    assert os.environ["JAVA_HOME"] == "/before"
    assert "SPARK_LOCAL_IP" not in os.environ


def test_python_workers_import_no_archive_of_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    home = Path(local_session._variables(tmp_path)["SPARK_HOME"])
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert not (home / "python").exists()
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert local_session._variables(tmp_path)["SPARK_HOME"] == "/opt/spark"


@pytest.mark.parametrize(
    ("there", "is_set"),
    [
        (["bin/spark-submit", "jars/spark-core.jar"], True),
        (["bin/spark-submit"], False),
        (["jars/spark-core.jar"], False),
        (["bin/spark-submit", "jars/spark-core.jar", "spark-distribution/bin/spark-submit"], False),
    ],
)
def test_pyspark_searches_by_itself_where_its_package_is_not_the_spark_to_be_used(
    there: list[str], is_set: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, home = tmp_path / "pyspark", tmp_path / "home"
    for name in there:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    home.mkdir()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("pyspark.__file__", str(package / "__init__.py"))
    assert ("SPARK_HOME" in local_session._variables(home)) is is_set
    assert bool(list(home.iterdir())) is is_set


def test_known_noise_is_kept_back_and_all_else_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    noise = [b"WARNING: Using incubator modules: jdk.incubator.vector", b'Setting default log level to "WARN".']
    local_session._forward(io.BytesIO(b"\n".join([*noise, b"an \xff error\n"])))
    assert capsys.readouterr().err == "an � error\n"


@pytest.mark.usefixtures("no_session")
# PySpark leaves the pipe to a Java process that did not start to the garbage collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <_io.FileIO:pytest.PytestUnraisableExceptionWarning")
def test_what_java_says_when_it_does_not_start_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho no memory for Java >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setattr(local_session, "ensure_java_home", lambda: tmp_path)
    with (
        pytest.raises(ConfigError, match=r"Spark's Java process did not start: .*no memory for Java"),
        local_session.spark_session("x"),
    ):
        pass


@pytest.mark.usefixtures("no_session")
def test_nothing_is_left_open_where_there_is_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> Path:
        raise JavaRuntimeError("PySpark needs Java 17 or later: none is installed")

    monkeypatch.setattr(local_session, "ensure_java_home", no_java)
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(JavaRuntimeError, match="none is installed") as refused, local_session.spark_session("x"):
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) <= before, refused
