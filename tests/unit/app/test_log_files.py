"""Files of a server's log: names, sizes, and a disk that takes no more."""

import errno
import fcntl
import logging
import os
from pathlib import Path

import pytest

from rocketbroker.app.log_files import LogFile, LogFiles, log_folder
from rocketbroker.common.config import BrokerConfig, NamesrvConfig


class Reports(list[str]):
    """Lines for the terminal."""

    def __call__(self, text: str) -> None:
        self.append(text)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path, reports: Reports, clock: Clock) -> LogFile:
    return LogFile(tmp_path / "logs" / "broker.log", 20, 2, reports, clock)


class TestFolder:
    def test_a_server_writes_no_files_by_default(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.delenv("ROCKETMQ_HOME", raising=False)

        assert log_folder(BrokerConfig()) is None

    def test_with_rocketmqs_home_files_go_to_its_usual_place(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        monkeypatch.setenv("ROCKETMQ_HOME", "/opt/rocketmq")
        monkeypatch.setenv("HOME", str(tmp_path))

        assert log_folder(NamesrvConfig(), "b_0") == tmp_path / "logs" / "rocketmqlogs"
        assert log_folder(BrokerConfig(log_dir="/var/log/mq"), "b_0") == Path("/var/log/mq")

    def test_brokers_of_one_machine_have_a_folder_each(self):
        settings = BrokerConfig(log_dir="/var/log/mq", isolate_log_enable=True)

        assert log_folder(settings, "broker-a_1") == Path("/var/log/mq/broker-a_1")


class TestNames:
    @pytest.mark.parametrize(
        ("logger", "name"),
        [
            ("rocketbroker.store.flush.flush_service", "store"),
            ("rocketbroker.storefront", "broker"),
            ("rocketbroker.ha.ha_service", "store"),
            ("rocketbroker.transport.request_meter", "remoting"),
            ("rocketbroker.broker.transaction.half_messages", "transaction"),
            ("rocketbroker.broker.pop.pop_recovery", "pop"),
            ("rocketbroker.proxy.receipts", "proxy"),
            ("rocketbroker.stats", "stats"),
            ("rocketbroker.watermark", "watermark"),
            ("rocketbroker.audit_log", "broker_audit"),
            ("rocketbroker.broker.timer.timer_message_store", "broker"),
            ("asyncio", "broker"),
        ],
    )
    def test_a_line_of_a_broker_goes_to_rocketmqs_file(self, tmp_path: Path, reports: Reports, logger: str, name: str):
        files = LogFiles(tmp_path, "broker", BrokerConfig(), reports)

        files.emit(record(logger))
        files.close()

        assert [path.name for path in tmp_path.iterdir()] == [f"{name}.log"]

    def test_all_lines_of_a_name_server_go_to_one_file(self, tmp_path: Path, reports: Reports):
        files = LogFiles(tmp_path, "namesrv", NamesrvConfig(), reports)

        for logger in ("rocketbroker.namesrv.route_info_manager", "rocketbroker.transport.endpoint"):
            files.emit(record(logger))
        files.close()

        assert (tmp_path / "namesrv.log").read_text() == "a line\na line\n"


def record(logger: str) -> logging.LogRecord:
    return logging.LogRecord(logger, logging.INFO, "x.py", 1, "a line", (), None)


class TestSizes:
    def test_a_full_file_is_renamed_and_the_oldest_is_deleted(self, file: LogFile, tmp_path: Path):
        for number in range(8):
            file.write(b"line %d...\n" % number)
        file.close()

        folder = tmp_path / "logs"
        assert (folder / "broker.log").read_bytes() == b"line 6...\nline 7...\n"
        assert {path.name: path.read_bytes() for path in (folder / "otherdays").iterdir()} == {
            "broker.1.log": b"line 4...\nline 5...\n",
            "broker.2.log": b"line 2...\nline 3...\n",
        }

    def test_a_line_longer_than_a_file_is_written(self, file: LogFile, tmp_path: Path):
        file.write(b"x" * 50 + b"\n")

        assert (tmp_path / "logs" / "broker.log").stat().st_size == 51

    def test_a_restart_goes_on_in_the_same_file(self, file: LogFile, reports: Reports, clock: Clock, tmp_path: Path):
        file.write(b"before\n")
        file.close()
        again = LogFile(tmp_path / "logs" / "broker.log", 20, 2, reports, clock)

        again.write(b"after\n")

        assert (tmp_path / "logs" / "broker.log").read_bytes() == b"before\nafter\n"


class TestDisks:
    def test_lines_of_a_full_disk_are_lost_and_counted(
        self, file: LogFile, reports: Reports, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        file.write(b"before\n")
        monkeypatch.setattr(os, "write", full)
        for _ in range(3):
            file.write(b"lost\n")
        clock.now += 1.0
        file.write(b"lost\n")
        monkeypatch.undo()
        file.write(b"lost: too early\n")
        assert len(reports) == 1

        clock.now += 1.0
        file.write(b"after\n")

        path = tmp_path / "logs" / "broker.log"
        assert path.read_bytes() == b"before\nafter\n"
        assert reports == [
            f"log file {path} cannot be written: No space left on device; its lines are lost until it can",
            f"log file {path} is written again; 5 lines were lost",
        ]

    def test_a_line_cut_by_a_full_disk_spoils_no_other(
        self, file: LogFile, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        write = os.write
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:4]))
        file.write(b"halves\n")
        monkeypatch.undo()
        clock.now += 1.0

        file.write(b"whole\n")

        assert (tmp_path / "logs" / "broker.log").read_bytes() == b"halv\nwhole\n"

    def test_a_removed_folder_is_made_again(self, file: LogFile, reports: Reports, clock: Clock, tmp_path: Path):
        file.write(b"before\n")
        (tmp_path / "logs" / "broker.log").unlink()
        (tmp_path / "logs").rmdir()
        clock.now += 1.0

        file.write(b"after\n")

        assert (tmp_path / "logs" / "broker.log").read_bytes() == b"after\n"
        assert reports == []

    def test_a_file_that_cannot_be_renamed_grows_on(
        self, file: LogFile, reports: Reports, clock: Clock, tmp_path: Path
    ):
        folder = tmp_path / "logs"
        folder.mkdir()
        (folder / "otherdays").touch()  # a file in place of the folder
        for number in range(4):
            file.write(b"line %d...\n" % number)
            clock.now += 1.0
        (folder / "otherdays").unlink()
        file.write(b"line 4...\n")
        file.close()

        path = folder / "broker.log"
        assert [each.removeprefix(f"log file {path} ") for each in reports] == [
            "cannot be renamed to otherdays/: File exists; it grows beyond logFileMaxSize until it can",
            "is renamed again",
        ]
        assert (folder / "otherdays" / "broker.1.log").read_bytes() == b"line 0...\nline 1...\nline 2...\nline 3...\n"
        assert path.read_bytes() == b"line 4...\n"

    def test_tries_to_rename_lose_no_older_file(
        self, file: LogFile, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        folder = tmp_path / "logs"
        (folder / "otherdays").mkdir(parents=True)
        (folder / "otherdays" / "broker.1.log").write_text("older")
        replace = Path.replace

        def refuse_the_log(path: Path, target: Path) -> Path:
            if path.parent == folder:
                raise PermissionError(errno.EPERM, "Operation not permitted")
            return replace(path, target)

        monkeypatch.setattr(Path, "replace", refuse_the_log)
        for number in range(8):
            file.write(b"line %d...\n" % number)
            clock.now += 1.0
        file.close()

        assert (folder / "otherdays" / "broker.2.log").read_text() == "older"

    def test_a_file_that_another_tool_renamed_is_begun_anew(self, file: LogFile, clock: Clock, tmp_path: Path):
        file.write(b"before\n")
        path = tmp_path / "logs" / "broker.log"
        path.rename(tmp_path / "taken.log")
        clock.now += 1.0

        file.write(b"after\n")

        assert path.read_bytes() == b"after\n"
        assert (tmp_path / "taken.log").read_bytes() == b"before\n"

    def test_a_folder_that_cannot_be_made_ends_nothing(self, reports: Reports, clock: Clock, tmp_path: Path):
        (tmp_path / "file").touch()

        LogFile(tmp_path / "file" / "broker.log", 20, 2, reports, clock).write(b"lost\n")

        assert len(reports) == 1
        assert "cannot be written: File exists" in reports[0]

    def test_a_file_of_another_process_is_left_alone(
        self, file: LogFile, reports: Reports, clock: Clock, tmp_path: Path
    ):
        path = tmp_path / "logs" / "broker.log"
        path.parent.mkdir()
        with path.open("w") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            file.write(b"lost\n")
        assert "another process writes this file" in reports[0]
        assert "isolateLogEnable" in reports[0]
        clock.now += 1.0

        file.write(b"after\n")

        assert path.read_bytes() == b"after\n"


def full(_descriptor: int, _data: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
