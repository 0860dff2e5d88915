"""Notes and examples of the sub-commands about users and policies, for the page of mqadmin."""

from typing import Final

_ASKS = "With `-c` all masters are asked. In JSON: `brokers` with `addr`"

NOTES: Final = {
    "createUser": (
        """\
Asks for the password twice, without showing it; `--password-stdin` reads it from a pipe. `-p` works as with RocketMQ's
tool, and warns, since every user of the machine can read it. `-c` writes to masters and slaves; a slave of
this project takes changes from its master alone, and a line says so. In JSON: `username`, `userType` and `brokers`,
those that created it.""",
        "pwgen -s 32 1 | mqadmin createUser -n 127.0.0.1:9876 -c DefaultCluster -u joe --password-stdin",
    ),
    "updateUser": (
        """\
What is not given stays. Requests of a user with `-s disable` are rejected. In JSON: `username`, `userType`,
`userStatus`, `passwordChanged` and `brokers`.""",
        "mqadmin updateUser -n 127.0.0.1:9876 -c DefaultCluster -u joe -s disable",
    ),
    "deleteUser": (
        "A broker without the user reports success. In JSON: `username` and `brokers`.",
        "mqadmin deleteUser -n 127.0.0.1:9876 -c DefaultCluster -u joe",
    ),
    "getUser": (
        f"""\
Passwords are never shown: Apache's brokers answer them in clear, ours do not. An unknown user is an error (exit code
1); RocketMQ's tool prints nothing. {_ASKS}, `users` and `error`.""",
        "mqadmin getUser -n 127.0.0.1:9876 -b 127.0.0.1:10911 -u joe",
    ),
    "listUser": (
        f"""\
{_ASKS}, `users` with `username`, `userType` and `userStatus`, and `error`. RocketMQ's tool stops at the first master
that has a user.""",
        "mqadmin listUser -n 127.0.0.1:9876 -c DefaultCluster",
    ),
    "copyUser": (
        """\
The password goes with a user only if the source tells it, as Apache's brokers do. Ours do not: then a user that the
target has keeps its password there, and one that it lacks is an error with the `createUser` to run. In JSON:
`fromBroker`, `toBroker` and `users`, those that were copied.""",
        "mqadmin copyUser -n 127.0.0.1:9876 -f 127.0.0.1:10911 -t 127.0.0.1:20911 -u joe",
    ),
    "createAcl": (
        """\
Adds to the policies of the user; what it had for the same resource is replaced. A resource is `*`, or `Topic:`,
`Group:`, `Cluster:` or `Namespace:` with a name, a beginning such as `orders*`, or `*`. Values that no broker knows are
refused before they are sent; Apache's broker skips an unknown action in silence. In JSON: `subject`, `policies` and
`brokers`.""",
        "mqadmin createAcl -n 127.0.0.1:9876 -c DefaultCluster -s User:joe -r Topic:orders -a Pub,Sub -d Allow",
    ),
    "updateAcl": (
        """\
Does the same as `createAcl`, as with RocketMQ: resources that are not named keep their entries. In JSON: `subject`,
`policies` and `brokers`.""",
        "mqadmin updateAcl -n 127.0.0.1:9876 -c DefaultCluster -s User:joe -r Topic:orders -a Pub -d Deny",
    ),
    "deleteAcl": (
        """\
Without `-r` all policies of the user are deleted. Several resources are joined by commas, and each is checked first,
since Apache's broker deletes all policies if it does not know the resource. In JSON: `subject`, `resources` and
`brokers`.""",
        "mqadmin deleteAcl -n 127.0.0.1:9876 -c DefaultCluster -s User:joe -r Topic:orders",
    ),
    "getAcl": (
        f"""\
A user without policies is an error (exit code 1); RocketMQ's tool prints nothing. {_ASKS}, `acls` and `error`.""",
        "mqadmin getAcl -n 127.0.0.1:9876 -b 127.0.0.1:10911 -s User:joe",
    ),
    "listAcl": (
        f"{_ASKS}, `acls` with `subject` and `policies`, and `error`.",
        "mqadmin listAcl -n 127.0.0.1:9876 -c DefaultCluster -r Topic:orders",
    ),
    "copyAcl": (
        """\
Adds to the policies of users that the target has; its entries for other resources stay. In JSON: `fromBroker`,
`toBroker` and `subjects`, those that were copied.""",
        "mqadmin copyAcl -n 127.0.0.1:9876 -f 127.0.0.1:10911 -t 127.0.0.1:20911 -s User:joe",
    ),
}
