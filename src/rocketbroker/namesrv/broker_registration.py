"""What a broker says of itself when it registers (REGISTER_BROKER), in the terms of the route tables."""

from dataclasses import dataclass

from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody
from rocketbroker.codec.remoting.handler import Connection


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One registration.

    ``enable_acting_master`` is ``None`` for brokers too old to say it. ``heartbeat_timeout_ms`` is ``None`` where the
    default of 120 s holds. ``body`` holds all topics of the broker, or only the changed ones.
    """

    cluster_name: str
    broker_name: str
    broker_addr: str
    broker_id: int
    ha_server_addr: str
    heartbeat_timeout_ms: int | None
    enable_acting_master: bool | None
    body: RegisterBrokerBody
    connection: Connection


@dataclass(frozen=True, slots=True)
class RegisterBrokerResult:
    """What a slave learns of its master; both ``None`` for a master, or when there is none."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
