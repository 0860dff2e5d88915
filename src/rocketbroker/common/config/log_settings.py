"""Settings of a server's log (rmq.broker.logback.xml, rmq.namesrv.logback.xml, rmq.proxy.logback.xml)."""

from typing import Annotated, Literal

from pydantic import BeforeValidator

from rocketbroker.common.config.fields import ConfigModel, Flag, OptionalPath, Trait, Whole, setting, size, strip, whole


def _upper(value: object) -> object:
    return value.strip().upper() if isinstance(value, str) else value


LogLevel = Annotated[Literal["", "DEBUG", "INFO", "WARN", "WARNING", "ERROR"], BeforeValidator(_upper)]
LogFormat = Annotated[Literal["text", "json"], BeforeValidator(strip)]


class LogSettings(ConfigModel):
    """Place, level and form of log lines."""

    log_dir: OptionalPath = setting(
        "",
        "Folder of log files, beside the lines on the terminal. Empty means no files, or with the environment variable "
        "ROCKETMQ_HOME the folder of RocketMQ: logs/rocketmqlogs in the user's home.",
        Trait(own=True, takes="a path"),
    )
    log_level: LogLevel = setting(
        "",
        "Lowest level of the lines that are written; empty means that of the environment variable "
        "ROCKETBROKER_LOG_LEVEL, else INFO.",
        Trait(own=True, hot=True, takes="DEBUG, INFO, WARN, ERROR or empty"),
    )
    log_format: LogFormat = setting(
        "text", "Form of a line on the terminal and in files: text, or a JSON object.", Trait(own=True)
    )
    log_file_max_size: Whole = setting(
        128 << 20, "Size at which a log file is renamed and a new one begins.", size(1_024, 1 << 40, own=True)
    )
    log_file_max_num: Whole = setting(
        10,
        "Number of renamed files that are kept of each log file, in otherdays; the oldest is deleted.",
        whole(1, 1_000, own=True),
    )
    audit_log_enable: Flag = setting(
        True,
        "Write a log file of administrative changes and refused requests, a JSON object a line, where there are log "
        "files.",
        Trait(own=True),
    )


class BrokerLogSettings(LogSettings):
    """Log of a broker, of which a machine may have several."""

    isolate_log_enable: Flag = setting(
        False, "Write the log files to a folder <brokerName>_<brokerId> in logDir, for several brokers on one machine."
    )
