"""An official SDK as a process under a test's control: commands to its stdin, events from its stdout.

Each is one JSON object a line. The drivers of tests/interop/sdk know these commands, each with the `name` of a client:

    producer  topic                              prints `check` when the server asks for a transaction
    push      group, topic, tag | sql            starts a push consumer; prints `message` for each delivery
    simple    group, topic, tag | sql, await_ms
    send      topic, body, tag?, keys?, properties?, message_group?, delay_ms?, transaction?
                                                 transaction: COMMIT, ROLLBACK or UNKNOWN; done: id, handle
    recall    topic, handle                      done: id
    receive   max, invisible_ms                  prints `message` for each; done: count
    ack       id
    change    id, invisible_ms
    stop

The first event is `ready` with the version of the SDK. A command is answered by the event `done` or `failed` (error)
with its number `n`; several may be under way at once. The events `message` and `check` describe a message. A push
consumer fails as often as the property `failures` of a message says, and a check is answered by its property `check`,
COMMIT or ROLLBACK.
"""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.java_process import BOOT_LIMIT, JavaProcess
from tests.support.sdk_toolchain import LACKING, VERSIONS, SdkError, sdk_command

STEP_LIMIT = 60  # seconds, on a machine that may have other work

Event = dict[str, Any]


@dataclass(slots=True)
class SdkProcess:
    """A running driver of one language."""

    language: str
    process: JavaProcess
    _sent: int = 0

    @classmethod
    def start(
        cls, language: str, endpoints: str, home: Path, variables: Mapping[str, str] | None = None
    ) -> "SdkProcess":
        """Start a driver.

        Args:
            language: one of those of the SDKs.
            endpoints: "host:port" of the proxy.
            home: takes its output and the SDK's logs.
            variables: of its environment. The drivers of Python, Go, Java and Node sign by SDK_ACCESS_KEY and
                SDK_SECRET_KEY; those of Python and Node use TLS with SDK_TLS, as those of Go and Java always do.
        """
        log = home / f"{language}.out"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*sdk_command(language, home), endpoints],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=home,
                env={**os.environ, "HOME": str(home), **(variables or {})},
            )
        sdk = cls(language, JavaProcess(f"the {language} SDK", process, log))
        sdk.process.wait_until(lambda: bool(sdk.events("ready")), BOOT_LIMIT, "start")
        (ready,) = sdk.events("ready")
        if ready["version"] != VERSIONS[language]:
            sdk.close()
            raise SdkError(f"the {language} SDK is {ready['version']}, wanted is {VERSIONS[language]}")
        return sdk

    def has(self, verb: str) -> bool:
        """Return true if the SDK has something for a command, or for `reconnect`."""
        return verb not in LACKING.get(self.language, ())

    def events(self, event: str, **fields: object) -> list[Event]:
        """Return the events of a kind whose fields are as given, in order."""
        wanted = {"event": event, **fields}
        found = [json.loads(line) for line in self.process.lines() if line.startswith("{") and line.endswith("}")]
        return [each for each in found if wanted.items() <= each.items()]

    def begin(self, verb: str, name: str, **fields: object) -> int:
        """Send a command and return its number."""
        self._sent += 1
        stdin = self.process.process.stdin
        assert stdin is not None
        stdin.write(json.dumps({"do": verb, "n": self._sent, "name": name, **fields}).encode() + b"\n")
        stdin.flush()
        return self._sent

    def end(self, number: int, limit: float = STEP_LIMIT) -> Event:
        """Wait for the answer to a command and return it.

        Raises:
            SdkError: it failed.
        """

        def answers() -> list[Event]:
            return [*self.events("done", n=number), *self.events("failed", n=number)]

        self.process.wait_until(lambda: bool(answers()), limit, f"answer command {number}")
        (answer,) = answers()
        if answer["event"] == "failed":
            raise SdkError(f"{self.language}: command {number}: {answer['error']}")
        return answer

    def do(self, verb: str, name: str, **fields: object) -> Event:
        """Run a command to its end and return the answer."""
        return self.end(self.begin(verb, name, **fields))

    def wait_messages(
        self, name: str, condition: Callable[[list[Event]], bool], what: str, limit: float = STEP_LIMIT
    ) -> list[Event]:
        """Wait until the messages of a consumer are as expected; return them."""
        self.process.wait_until(lambda: condition(self.events("message", name=name)), limit, f"give {what} to {name}")
        return self.events("message", name=name)

    def close(self) -> None:
        """End the driver at once: its clients' orderly ends take up to a long poll, and are not what is tested."""
        assert self.process.process.stdin is not None
        self.process.process.stdin.close()
        self.process.kill()
