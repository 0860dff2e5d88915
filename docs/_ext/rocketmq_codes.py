"""Page of RocketMQ's request codes and their state here."""

from docs._ext.request_codes import sections
from rocketbroker.codec.remoting.request_code import RequestCode

_INTRODUCTION = """\
# Request codes of RocketMQ 5.5.0 and their state here

For those who move a client, a proxy or a tool from Apache RocketMQ: find out which requests are answered. The page is
generated from the tables that the servers run with.

- *broker*, *name server*: served there. [Request codes](../reference/request-codes.md) has file, header and audience.
- *sent*: a request that the servers send to clients or brokers, but do not accept.
- All other requests get the answer REQUEST_CODE_NOT_SUPPORTED (3). The last column names their part of RocketMQ.

"""

# Requests that servers send; a client answers them.
SENT = {
    RequestCode.CHECK_TRANSACTION_STATE: "broker to a producer",
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: "broker to the clients of a group",
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: "broker to the clients of a group",
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: "broker to the clients of a group",
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: "broker to the client that sent the request",
}
# Part of RocketMQ by range of codes; the first range with the code counts.
_PARTS = (
    (range(22, 24), "RocketMQ 3, unused since"),
    (range(60, 62), "replication of timer messages"),
    (range(354, 356), "RocksDB stores"),
    (range(400, 403), "consumption by POP"),
    (range(513, 514), "static topics"),
    (range(902, 904), "broker container"),
    (range(906, 909), "replication"),
    (range(1007, 1009), "replication"),
    (range(1001, 1019), "controller"),
    (range(2001, 2005), "cold data"),
    (range(3001, 3011), "access control"),
    (range(5001, 5002), "RocksDB stores"),
    (range(200_070, 200_080), "lite topics"),
    (range(200_050, 200_152), "consumption by POP"),
)


def state_of(code: RequestCode, served: dict[int, str]) -> str:
    """Return where a code is served or sent, or the missing part of RocketMQ that it belongs to."""
    if code in served:
        return served[code]
    if code in SENT:
        return f"sent: {SENT[code]}"
    part = next((part for codes, part in _PARTS if code in codes), "unused in RocketMQ 5")
    return f"no: {part}"


def served_codes() -> dict[int, str]:
    """Return the servers of each served code."""
    served: dict[int, str] = {}
    for title, _, routes in sections():
        for code in routes:
            served[code] = f"{served[code]}, {title.lower()}" if code in served else title.lower()
    return served


def render() -> str:
    """Return the whole page."""
    served = served_codes()
    rows = [f"| {code.value} | {code.name} | {state_of(code, served)} |" for code in sorted(RequestCode)]
    return _INTRODUCTION + "\n".join(["| code | name | state |", "|---|---|---|", *rows, ""])
