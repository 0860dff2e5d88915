"""A real Prometheus (Debian's package) that reads metrics of our servers and evaluates rules each second."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.support.java_process import JavaProcess
from tests.support.ports import LOOPBACK, free_ports
from tests.support.raw_client import TIMEOUT_S
from tests.support.waiting import wait_until

_READY = "Server is ready to receive web requests"
_LIMIT_S = 120


def require_prometheus() -> None:
    """Skip a test where Prometheus is not installed."""
    if not (shutil.which("prometheus") and shutil.which("promtool")):
        pytest.skip(
            "needs-prometheus: prometheus or promtool not found (Debian and Ubuntu: apt-get install prometheus)"
        )


def check_rules(path: Path, command: str = "check") -> str:
    """Return what promtool says of a file of rules, or of tests of rules with the command ``test``.

    Raises:
        subprocess.CalledProcessError: it finds an error.
    """
    done = subprocess.run(["promtool", command, "rules", str(path)], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


class Prometheus:
    """A Prometheus that reads the given targets.

    Args:
        home: takes its files.
        targets: ``host:port`` of each target and its job.
        rules: text of a file of rules.
    """

    def __init__(self, home: Path, targets: Mapping[str, str], rules: str) -> None:
        home.mkdir()
        (home / "rules.yml").write_text(rules)
        jobs = sorted(set(targets.values()))
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(home / "rules.yml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [each for each in targets if targets[each] == job]}]}
                for job in jobs
            ],
        }
        # JSON is YAML.
        (home / "prometheus.yml").write_text(json.dumps(config))
        port = free_ports()
        self._url = f"http://{LOOPBACK}:{port}/api/v1"
        command = [
            "prometheus",
            f"--config.file={home}/prometheus.yml",
            f"--storage.tsdb.path={home}/data",
            f"--web.listen-address={LOOPBACK}:{port}",
        ]
        output = home / "prometheus.log"
        with output.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self._server = JavaProcess("prometheus", process, output)
        self._server.wait_for(_READY)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()

    def _get(self, path: str, **fields: str) -> Any:
        with urlopen(f"{self._url}/{path}?{urlencode(fields)}", timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read())["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression now."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def query_range(self, expression: str, start: float, end: float, step: str) -> list[dict[str, Any]]:
        """Return the series of an expression between two times."""
        found: list[dict[str, Any]] = self._get(
            "query_range", query=expression, start=str(start), end=str(end), step=step
        )["result"]
        return found

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        return {each["labels"]["alertname"] for each in self._get("alerts")["alerts"] if each["state"] == "firing"}

    def errors(self) -> list[str]:
        """Return the errors of rules."""
        groups = self._get("rules")["groups"]
        return [each["lastError"] for group in groups for each in group["rules"] if each.get("lastError")]

    def wait_for_alert(self, name: str) -> None:
        """Wait until an alert fires."""
        wait_until(lambda: name in self.firing(), f"the alert {name}", _LIMIT_S)

    def wait_for_samples(self, expression: str) -> None:
        """Wait until an expression has samples."""
        wait_until(lambda: self.query(expression), f"samples of {expression}", _LIMIT_S)
