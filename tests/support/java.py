"""Running Java in a test: our drivers, Apache's mqadmin, Apache's name server and broker; all ended with the test.

Use it through the fixtures of tests/conftest.py:

    async def test_it(java, java_namesrv): ...
        done = java.run("ClientVersion", "argument", client="4.9.8")      # waits; done.stdout
        process = java.start("Consumer", address)                         # does not wait; .lines(), .stop(), .kill()
        done = java.mqadmin("clusterList", namesrv=address)               # rocketmq-tools 5.5.0
        broker = java.broker(namesrv=java_namesrv.address, store=tmp_path / "store", flushDiskType="SYNC_FLUSH")
        java.server_version = "4.9.7"                                     # servers from here on

`run` and `mqadmin` block: call them by `asyncio.to_thread` when the server under test lives on the test's own loop.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.admin_shell import AdminShell
from tests.support.java_process import BOOT_LIMIT, JavaProcess, JavaServer, wait_registered
from tests.support.java_toolchain import (
    OPENS,
    PROXY,
    class_archive,
    classes,
    driver_classpath,
    find_tools,
    jars,
    training_jar,
)
from tests.support.other_machine import OtherMachine
from tests.support.ports import LOOPBACK, free_ports

# Without a settings file for its logging, the official code prints pages about it to standard output.
LOGGING = """\
<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>${log.file}</file>
    <encoder><pattern>%d{HH:mm:ss.SSS} %level %logger{0} %thread - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""

# A test's JVM is short-lived: the second compiler and a concurrent collector cost more than they save.
LIGHT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms64m")
PROXY_GRPC, PROXY_REMOTING = 2, 3  # ports of the proxy from that of its broker
PROXY_BOOTED = "rocketmq-proxy startup successfully"
ADMINISTRATION = frozenset({"Admin", "AdminShell", "GroupAdmin"})


@dataclass(slots=True)
class Java:
    """Starts JVMs for one test; `home` holds their logs, settings and user.home, `server_version` is that of servers.

    Servers take TLS if `serves_tls` is true: making a key for it is most of their start.
    Drivers run on `other` where there is one, but for those that administer: these run beside the servers.
    """

    home: Path
    other: OtherMachine | None = None
    server_version: str = "5.5.0"
    serves_tls: bool = False
    started: list[JavaProcess] = field(default_factory=list)
    _shell: AdminShell | None = None

    def __post_init__(self) -> None:
        (self.home / "logback.xml").write_text(LOGGING)
        conf = self.home / "conf"
        conf.mkdir(exist_ok=True)
        for server in ("broker", "namesrv"):  # where servers of 4.9 have it
            (conf / f"logback_{server}.xml").write_text(LOGGING)

    def _command(self, main: str, heap: str, properties: dict[str, str], *classpath: str) -> list[str]:
        """Return the command of a JVM of 5.5.0."""
        command = self._plain_command(main, heap, properties, f"{jars('5.5.0')}/*", str(training_jar()), *classpath)
        return [command[0], *class_archive(), *command[1:]]

    def _plain_command(self, main: str, heap: str, properties: dict[str, str], *classpath: str) -> list[str]:
        home = str(self.home)
        defined = {"user.home": home, "rocketmq.home.dir": home, "log.file": f"{home}/{main.rpartition('.')[2]}.log"}
        defined |= {"rmq.logback.configurationFile": f"{home}/logback.xml", **properties}
        options = [f"-D{key}={value}" for key, value in defined.items()]
        return [find_tools()["java"], *LIGHT, f"-Xmx{heap}", *OPENS, *options, "-cp", ":".join(classpath), main]

    def _driver(self, driver: str, client: str, properties: dict[str, str]) -> list[str]:
        if client == "5.5.0":
            command = self._command(driver, "512m", properties, str(classes(driver, client)))
        else:
            command = self._plain_command(driver, "512m", properties, driver_classpath(driver, client))
        return command if self.other is None or driver in ADMINISTRATION else [*self.other.runner, *command]

    @property
    def _host(self) -> str:
        return LOOPBACK if self.other is None else self.other.servers_host

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "ROCKETMQ_HOME": str(self.home), "NAMESRV_ADDR": ""}

    def _run(self, command: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=self.home,
            env=self._environment(),
        )

    def _open(self, name: str, command: list[str]) -> tuple[subprocess.Popen[bytes], Path]:
        log = self.home / f"{name}-{len(self.started)}.out"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, cwd=self.home, env=self._environment()
            )
        return process, log

    def run(
        self,
        driver: str,
        *args: str,
        client: str = "5.5.0",
        timeout: float = 200,
        properties: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a driver of tests/interop/java with the given official client to its end."""
        command = self._driver(driver, client, properties or {})
        return self._run([*command, *args], timeout)

    def start(
        self, driver: str, *args: str, client: str = "5.5.0", properties: dict[str, str] | None = None
    ) -> JavaProcess:
        """Start a driver and return at once."""
        command = self._driver(driver, client, properties or {})
        process = JavaProcess(driver, *self._open(driver, [*command, *args]))
        self.started.append(process)
        return process

    def admin_shell(self) -> AdminShell:
        """Return the JVM that runs Apache's mqadmin 5.5.0 for this test; the first call starts it."""
        if self._shell is None:
            file = self.home / "mqadmin.txt"
            file.touch()
            self._shell = AdminShell(self.start("AdminShell", f"file={file}"), file)
        return self._shell

    def mqadmin(
        self, *args: str, namesrv: str, timeout: float = 200, runner: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run Apache's mqadmin 5.5.0: `java.mqadmin("topicRoute", "-t", "T", namesrv="127.0.0.1:9876")`.

        It runs beside the servers, in the JVM of `admin_shell`, or in one of its own, whose command follows `runner`.
        The status is 1 if the command reports that it failed; in a JVM of its own it is Apache's, which is always 0.
        """
        if not runner:
            words = args if not args or "-n" in args else (*args, "-n", namesrv)
            printed = self.admin_shell().run(words, timeout)
            return subprocess.CompletedProcess(words, int(printed.failed), printed.out, printed.err)
        main = "org.apache.rocketmq.tools.command.MQAdminStartup"
        command = self._command(main, "512m", {"rocketmq.namesrv.addr": namesrv})
        return self._run([*runner, *command, *args], timeout)

    def namesrv(self, **properties: str | int) -> JavaServer:
        """Start Apache's name server on a free port; ready when this returns."""
        port = free_ports()
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        return self._serve("namesrv", main, port, {"listenPort": port, **properties})

    def broker(self, namesrv: str, store: Path | None = None, **properties: str | int) -> JavaServer:
        """Start Apache's broker, registered at `namesrv`; ready when this returns.

        `store` is its storePathRootDir (a new folder by default); any broker property goes by its own name. Without a
        `listenPort` its ports are free ones.
        """
        # listenPort - 2 is the VIP port, listenPort + 1 the one for HA.
        port = int(properties.pop("listenPort", 0)) or free_ports(-2, 1)
        store = store or self.home / f"store-{port}"
        settings = self._broker_settings(port, namesrv, store, properties)
        server = self._serve("broker", "org.apache.rocketmq.broker.BrokerStartup", port, settings)
        server.store = store
        wait_registered(server.address, namesrv)
        return server

    def _broker_settings(
        self, port: int, namesrv: str, store: Path, properties: dict[str, str | int]
    ) -> dict[str, str | int]:
        return {
            "brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": 0, "brokerIP1": self._host,
            "listenPort": port, "haListenPort": port + 1, "namesrvAddr": namesrv, "storePathRootDir": str(store),
            "storePathCommitLog": f"{store}/commitlog", "autoCreateTopicEnable": "true", "defaultTopicQueueNums": 8,
            # Its TransactionMetricsFlushService keeps a core busy until this time has passed, 10 s by default.
            "transactionMetricFlushInterval": 500, "diskMaxUsedSpaceRatio": 99, **properties,
        }  # fmt: skip

    def proxy(self, namesrv: str, port: int = 0, /, **properties: str | int) -> JavaServer:
        """Start Apache's proxy in LOCAL mode with the broker in it, on a free block of ports without a given one.

        ``port`` is the broker's, port + 2 takes gRPC. The store stays when it is started again.
        """
        port = port or free_ports(-2, 1, PROXY_GRPC, PROXY_REMOTING)
        store = self.home / f"store-{port}"
        broker = self.home / f"proxy-{port}.properties"
        settings = self._broker_settings(port, namesrv, store, properties)
        broker.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = self._proxy(port, namesrv)
        command += ["-pm", "local", "-bc", str(broker)]
        server = JavaServer("proxy", *self._open("proxy", command), port=port, store=store, host=self._host)
        self.started.append(server)
        server.wait_for(PROXY_BOOTED, 2 * BOOT_LIMIT)  # it starts a broker as well
        wait_registered(server.address, namesrv)
        return server

    def cluster_proxy(self, namesrv: str, grpc_port: int = 0) -> JavaServer:
        """Start Apache's proxy in CLUSTER mode, for the brokers of a name server; its port is that of gRPC."""
        port = grpc_port - PROXY_GRPC if grpc_port else free_ports(PROXY_GRPC, PROXY_REMOTING)
        command = [*self._proxy(port, namesrv), "-pm", "cluster"]
        server = JavaServer("proxy", *self._open("proxy", command), port=port + PROXY_GRPC, host=self._host)
        self.started.append(server)
        server.wait_for(PROXY_BOOTED)
        return server

    def _proxy(self, port: int, namesrv: str) -> list[str]:
        """Return the command of a proxy whose ports are counted from that of a broker."""
        conf = self.home / f"proxy-{port}.json"
        ports = {"grpcServerPort": port + PROXY_GRPC, "remotingListenPort": port + PROXY_REMOTING}
        conf.write_text(json.dumps({**ports, "localServeAddr": self._host, "rocketMQClusterName": "DefaultCluster"}))
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        command = self._plain_command(main, "512m", {"RMQ_PROXY_HOME": str(self.home)}, f"{jars(PROXY)}/*")
        return [*command, "-n", namesrv, "-pc", str(conf)]

    def _serve(self, name: str, main: str, port: int, settings: dict[str, str | int]) -> JavaServer:
        conf = self.home / f"{name}-{port}.properties"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        tls = {"tls.server.mode": "permissive" if self.serves_tls else "disabled"}
        if self.server_version == "5.5.0":
            command = self._command(main, "512m", tls)
        else:
            command = self._plain_command(main, "512m", tls, f"{jars(self.server_version)}/*")
        server = JavaServer(name, *self._open(name, [*command, "-c", str(conf)]), port=port, host=self._host)
        self.started.append(server)
        server.wait_for("boot success")
        return server

    def close(self) -> None:
        """Kill all that still runs: an orderly end would take long, and nothing reads the stores any more."""
        for process in self.started:
            process.kill()
