"""The official Java side for interop tests: a JDK and Maven found, jars fetched once, our drivers compiled once.

Jars and classes are kept in a cache shared by all checkouts (ROCKETBROKER_TEST_CACHE, or `rocketbroker-tests` in the
user's cache directory), under names that hold the digest of what they were made from. Parallel test workers wait for
each other on a lock file, and a folder appears by rename, whole or not at all. The benchmark uses it as well, in an
environment that has no pytest.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from tests.support.ports import free_ports

SOURCES = Path(__file__).resolve().parent.parent / "interop" / "java"
ARCHIVE_SOURCES = SOURCES / "archive"
CLIENTS = ("5.5.0", "4.9.8")
SERVERS = ("5.5.0", "4.9.7")  # 5.5.0 brings mqadmin, too; servers of 4.9.8 are not on Maven Central
SDK = "sdk-5.2.0"  # the client of the gRPC protocol, newest on Maven Central in November 2026
PROXY = "proxy-5.5.0"
LAKES = ("delta-4.2", "iceberg-4.1")  # tables that Spark writes, with the release of Spark that they are built for
WITH_PARQUET = "5.5.0-parquet"  # the client 5.5.0, and Parquet's writer for what a benchmark pulls
JUNIT = "org.junit.platform:junit-platform-console-standalone:1.11.4"
# The newest on Maven Central in November 2026; Spark 4.3.0 runs it.
SPARK_AVRO = "org.apache.spark:spark-avro_2.13:4.2.0"
# PySpark 4.2 has the other jars of this release.
HADOOP_CLUSTER = "org.apache.hadoop:hadoop-client-minicluster:3.5.0"
COPY_JAR_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
MAVEN_LIMIT = 600  # seconds
JAVAC_LIMIT = 120
TRAINING_LIMIT = 240
TOOLS = ("java", "javac", "mvn")

# The servers and clients reach into these packages; without the flags a JDK of 17 or later refuses.
OPENS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)


class JavaError(Exception):
    """A Java tool failed; the message holds its command and output."""


@cache
def find_tools() -> dict[str, str]:
    """Return the paths of java, javac and mvn, as far as they are there; JAVA_HOME goes before PATH."""
    found = {}
    home = os.environ.get("JAVA_HOME")
    for tool in TOOLS:
        path = shutil.which(tool, path=str(Path(home, "bin"))) if home else None
        path = path or shutil.which(tool)
        if path:
            found[tool] = path
    return found


def missing_tools() -> str | None:
    """Return the reason why tests that need Java cannot run, or None."""
    missing = [tool for tool in TOOLS if tool not in find_tools()]
    return f"needs-jdk: {', '.join(missing)} not found (a JDK of 17 or later and Maven)" if missing else None


def require_java() -> None:
    """Skip the test where Java tools are missing."""
    import pytest

    if reason := missing_tools():
        pytest.skip(reason)


def cache_dir() -> Path:
    given = os.environ.get("ROCKETBROKER_TEST_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketbroker-tests"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return `folder`; if missing, `make` fills it first in a temporary folder beside it."""
    if folder.exists():
        return folder
    with _locked(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
            try:
                make(part)
                part.rename(folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return folder


def _call(command: list[str], limit: float) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, check=False
    )
    if done.returncode != 0:
        raise JavaError(f"{' '.join(command[:4])} ... ended with {done.returncode}:\n{done.stdout[-4000:]}")


def digest_of(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def jars(version: str) -> Path:
    """Return the folder of jars of one official version, fetched by Maven at first use."""
    known = sorted({*CLIENTS, *SERVERS, *LAKES, SDK, PROXY, WITH_PARQUET})
    if version not in known:
        raise ValueError(f"no official version {version!r} here, there are {', '.join(known)}")
    pom = SOURCES / f"pom-{version}.xml"

    def fetch(folder: Path) -> None:
        options = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        _call([find_tools()["mvn"], "-q", "-B", "-f", str(pom), COPY_GOAL, *options], MAVEN_LIMIT)

    return made_once(cache_dir() / f"jars-{version}-{digest_of(pom.read_bytes())}", fetch)


def junit_jar() -> Path:
    """Return the jar of JUnit with its command, fetched by Maven at first use."""
    return _jar(JUNIT, "junit")


def spark_avro_jar() -> Path:
    """Return the jar of Spark's functions for Avro, fetched by Maven at first use."""
    return _jar(SPARK_AVRO, "spark-avro")


def hadoop_cluster_jar() -> Path:
    """Return the jar of Hadoop's servers in one process, fetched by Maven at first use."""
    return _jar(HADOOP_CLUSTER, "hadoop-minicluster")


def _jar(artifact: str, name: str) -> Path:
    """Return the jar of ``group:name:version`` without what it needs."""

    def fetch(folder: Path) -> None:
        options = [f"-Dartifact={artifact}", f"-DoutputDirectory={folder}", "-Dmdep.stripVersion=true"]
        _call([find_tools()["mvn"], "-q", "-B", COPY_JAR_GOAL, *options], MAVEN_LIMIT)

    _, jar, version = artifact.split(":")
    return made_once(cache_dir() / f"{name}-{version}", fetch) / f"{jar}.jar"


def classes(driver: str, version: str, folder: Path = SOURCES) -> Path:
    """Return the folder of classes of one driver, `<folder>/<driver>.java` and what it uses beside it."""
    sources = sorted(folder.glob("*.java"))
    if folder / f"{driver}.java" not in sources:
        raise ValueError(f"no driver {driver!r}, there are {', '.join(path.stem for path in sources)}")
    jar_dir = jars(version)
    digest = digest_of(jar_dir.name.encode(), *(path.name.encode() + path.read_bytes() for path in sources))

    def compile_it(target: Path) -> None:
        options = ["-nowarn", "-encoding", "UTF-8", "-sourcepath", str(folder), "-cp", f"{jar_dir}/*"]
        _call([find_tools()["javac"], *options, "-d", str(target), str(folder / f"{driver}.java")], JAVAC_LIMIT)

    return made_once(cache_dir() / f"classes-{driver}-{version}-{digest}", compile_it)


def driver_classpath(driver: str, version: str = "5.5.0", folder: Path = SOURCES) -> str:
    return f"{classes(driver, version, folder)}:{jars(version)}/*"


def training_jar() -> Path:
    """Return a jar of the program that loads the classes for the archive; an archive takes no folders of classes."""
    compiled = classes("Training", "5.5.0", ARCHIVE_SOURCES)

    def pack(folder: Path) -> None:
        with zipfile.ZipFile(folder / "training.jar", "w") as jar:
            for path in compiled.iterdir():
                jar.write(path, path.name)

    return made_once(cache_dir() / f"jar-{compiled.name}", pack) / "training.jar"


@cache
def class_archive() -> list[str]:
    """Return the options by which a JVM takes the classes of 5.5.0 from an archive, which is made at first use.

    Loading and verifying them takes half of the processor time of a short-lived JVM. The class path of such a JVM
    begins with the jars and `training_jar`; another one loads the jars.
    """
    java, jar = find_tools()["java"], training_jar()
    version = subprocess.run([java, "-version"], capture_output=True, check=True, timeout=JAVAC_LIMIT).stderr

    def train(folder: Path) -> None:
        port = free_ports(1, 4, 5)
        options = [*OPENS, "-XX:+UseSerialGC", "-Xmx512m", f"-XX:ArchiveClassesAtExit={folder / 'classes.jsa'}"]
        options += [f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}", "-cp", f"{jars('5.5.0')}/*:{jar}"]
        _call([java, *options, "Training", str(port), str(port + 4), str(folder)], TRAINING_LIMIT)
        for name in ("logs", "store"):
            shutil.rmtree(folder / name)

    folder = made_once(cache_dir() / f"archive-{digest_of(version, bytes(jar))}", train)
    return [f"-XX:SharedArchiveFile={folder / 'classes.jsa'}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
