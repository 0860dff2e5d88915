"""rocketbroker: a RocketMQ-compatible broker and name server in pure Python."""

__version__ = "0.1.0"
