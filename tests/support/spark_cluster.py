"""A Spark standalone cluster on this machine: a master and workers as processes, bound to loopback, on free ports."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import rocketbroker
from bench.measure import process_tree
from rocketbroker.analytics.spark.local_session import ensure_java_home, spark_home
from tests.support.java_process import JavaProcess
from tests.support.ports import LOOPBACK, free_ports

BOOT_LIMIT_S = 240
_PACKAGE = Path(rocketbroker.__file__).parent
# Each JVM lives for seconds, on few cores.
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def packed_environment(into: Path) -> Path:
    """Return a virtual environment with rocketbroker and what it needs at executors, as venv-pack packs it.

    Only Spark's jars are left out.
    """
    folder, path = into / "env", into / "env.tar.gz"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    shutil.copytree(_PACKAGE, packages / "rocketbroker", ignore=shutil.ignore_patterns("*.pyc"))
    for name in ("pyspark", "py4j", "numpy", "pyarrow", "msgspec", "lz4", "zstandard"):
        for file in importlib.metadata.files(name) or ():
            if file.suffix != ".pyc" and not {"..", "tests", "jars"} & {*file.parts}:
                place = packages / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), place)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(folder, ".")
    return path


def package_zip(into: Path) -> Path:
    """rocketbroker as an archive for ``--py-files``."""
    path = into / "rocketbroker.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for source in sorted(_PACKAGE.rglob("*")):
            if source.is_file() and source.suffix != ".pyc":  # the queries are files of another kind
                archive.write(source, source.relative_to(_PACKAGE.parent))
    return path


_EXECUTOR = "CoarseGrainedExecutorBackend"


def _running(pid: int, word: str) -> list[int]:
    """Return the processes below ``pid`` with a word in their command lines."""
    tree = [each for each in process_tree(pid) if each != pid]
    return [each for each in tree if word in _command_line(each)]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:  # it has ended
        return ""


@dataclass(slots=True)
class SparkCluster:
    """Starts its parts in ``home``; ``master`` is the address for applications."""

    home: Path
    master: str = ""
    started: list[JavaProcess] = field(default_factory=list)

    def start(self, workers: int) -> None:
        """Start a master and workers of one core each; all are registered when this returns."""
        port = free_ports(1)
        self.master = f"spark://{LOOPBACK}:{port}"
        own = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(port + 1)]
        master = self._launch("master", "org.apache.spark.deploy.master.Master", own)
        master.wait_for("I have been elected leader", BOOT_LIMIT_S)
        for number in range(workers):
            folder = self.home / f"worker-{number}"
            folder.mkdir()
            own = ["--host", LOOPBACK, "--cores", "1", "--memory", "1g", "--work-dir", str(folder), "--webui-port", "0"]
            self._launch(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", [*own, self.master])
        for worker in self.started[1:]:
            worker.wait_for("Successfully registered with master", BOOT_LIMIT_S)

    def environment(self) -> dict[str, str]:
        """Of what runs in the cluster: nothing of this project is on its Python path."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return {
            **kept,
            "JAVA_HOME": str(ensure_java_home()),
            "SPARK_HOME": str(self._spark()),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_CONF_DIR": str(self._conf()),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _BRIEF,
            "SPARK_SUBMIT_OPTS": _BRIEF,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }

    def submit(
        self,
        script: Path,
        *arguments: str,
        py_files: Path | None = None,
        archives: str = "",
        executors: Mapping[str, str] | None = None,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a script by spark-submit, as a user would; ``executors`` is their environment, the other the driver's.

        ``archives`` is that of spark-submit, such as ``env.tar.gz#environment``.
        """
        given = [
            word
            for name, value in (executors or {}).items()
            for word in ("--conf", f"spark.executorEnv.{name}={value}")
        ]
        command = [
            str(self._spark() / "bin" / "spark-submit"),
            *("--master", self.master, *(("--py-files", str(py_files)) if py_files else ())),
            *(("--archives", archives) if archives else ()),
            *("--conf", f"spark.driver.host={LOOPBACK}", "--conf", f"spark.driver.bindAddress={LOOPBACK}"),
            *("--conf", "spark.ui.enabled=false", "--executor-memory", "512m"),
            *("--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"),
            *("--conf", f"spark.executor.extraJavaOptions={_BRIEF}"),
            *given,
            str(script),
            *arguments,
        ]
        return subprocess.run(
            command,
            cwd=self.home,
            env=self.environment() | environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    def application_settings(self) -> dict[str, str]:
        """Return settings of a session that is no script of spark-submit."""
        return {
            "spark.master": self.master,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": _BRIEF,
        }

    def executors(self) -> list[int]:
        """Return the process ids of the executors' JVMs."""
        return [pid for worker in self.started[1:] for pid in _running(worker.process.pid, _EXECUTOR)]

    def python_workers(self) -> list[int]:
        """Return the process ids of the executors' Python workers, and of the daemons that start them."""
        return [pid for executor in self.executors() for pid in _running(executor, "pyspark.daemon")]

    def close(self) -> None:
        """End all, and print what they said, which pytest shows where the test failed."""
        for process in reversed(self.started):
            process.process.terminate()
        for process in self.started:
            try:
                process.process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
            print(f"----- {process.name} -----\n{process.text()[-4000:]}")

    def _spark(self) -> Path:
        """Return a home of Spark whose Python workers import PySpark faster."""
        folder = self.home / "spark"
        if not folder.exists():
            folder.mkdir()
            spark_home(folder)
        return folder

    def _conf(self) -> Path:
        folder = self.home / "conf"
        folder.mkdir(exist_ok=True)
        (folder / "spark-defaults.conf").write_text("spark.master.rest.enabled false\n")  # it has a port of its own
        return folder

    def _launch(self, name: str, main: str, arguments: list[str]) -> JavaProcess:
        environment = self.environment()
        log = self.home / f"{name}.out"
        command = [str(self._spark() / "bin" / "spark-class"), main, *arguments]  # becomes the Java process
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=self.home, env=environment)
        self.started.append(JavaProcess(name, process, log))
        return self.started[-1]
