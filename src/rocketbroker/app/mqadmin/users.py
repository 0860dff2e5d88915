"""Sub-commands about the users of access control (org.apache.rocketmq.tools.command.auth).

A password is never printed, and no option needs one: it is asked for on the terminal or read from stdin.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

import msgspec
import typer

from rocketbroker.app.mqadmin.command import (
    Report,
    ask_each,
    chosen_masters,
    failure_lines,
    given_address,
    sub_command,
    with_hint,
)
from rocketbroker.app.terminal import Column, Table, ask_hidden, say
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.auth import UserInfo
from rocketbroker.common.errors import RocketBrokerError

STARS: Final = "******"
_LONGEST_INPUT: Final = 1 << 17
_COLUMNS: Final = [Column("#UserName"), Column("#Password"), Column("#UserType"), Column("#UserStatus")]


class UserType(StrEnum):
    """Kind of a user: ``Super`` has every right."""

    NORMAL = "Normal"
    SUPER = "Super"


class UserStatus(StrEnum):
    """State of a user: requests of one that is disabled are rejected."""

    ENABLE = "enable"
    DISABLE = "disable"


OnBroker = Annotated[
    str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Change on this broker only.")
]
OnCluster = Annotated[
    str | None,
    typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Change on all masters and slaves of this cluster."),
]
OfBroker = Annotated[str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Ask this broker.")]
OfCluster = Annotated[
    str | None, typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Ask all masters of this cluster.")
]
FromBroker = Annotated[str, typer.Option("-f", "--fromBroker", metavar="HOST:PORT", help="Broker to copy from.")]
ToBroker = Annotated[str, typer.Option("-t", "--toBroker", metavar="HOST:PORT", help="Broker to copy to.")]
Username = Annotated[str, typer.Option("-u", "--username", metavar="NAME", help="Name of the user.")]
Password = Annotated[
    str | None,
    typer.Option("-p", "--password", metavar="SECRET", help="Password; all users of this machine can read it here."),
]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of the standard input.")
]
Type = Annotated[
    UserType | None,
    typer.Option("-t", "--userType", case_sensitive=False, help="Super has every right, Normal what policies allow."),
]


# -- brokers


#: Part of a slave's refusal of changes.
FOLLOWS: Final = "make the change at the master"


async def brokers_to_change(admin: AdminClient, broker: str | None, cluster: str | None) -> list[str]:
    """Return the address of the given broker, or those of all brokers of the cluster, masters first.

    Raises:
        typer.BadParameter: not exactly one of them is given, or an empty address.
        ClientError: the cluster is unknown.
    """
    if broker is not None and cluster is None:
        return [given_address(broker)]
    if cluster is not None and broker is None:
        found = await admin.fetch_master_and_slave_addresses(cluster)
        return [each for each in found if each] + [slave for slaves in found.values() for slave in slaves]
    raise typer.BadParameter("give either -b (one broker) or -c (all brokers of a cluster)")


async def changed(
    text: str, addresses: Sequence[str], ask: Callable[[str], Awaitable[object]], data: Mapping[str, object]
) -> Report:
    """Send a change to each broker, and report the brokers that made it.

    A slave of ours refuses changes, since it takes over those of its master: that is no failure beside a master that
    made the change.

    Args:
        text: the line for each broker, with ``{}`` for its address, as RocketMQ's tool prints it.
        addresses: the brokers.
        ask: sends it to one.
        data: further fields of the JSON value.
    """
    succeeded, failed = await ask_each(addresses, ask)
    following = [address for address, error in failed.items() if succeeded and FOLLOWS in str(error)]
    return Report(
        {**data, "brokers": succeeded},
        [*map(text.format, succeeded), *(f"slave {address} takes it over from its master." for address in following)],
        failure_lines({address: error for address, error in failed.items() if address not in following}),
    )


def names_in(text: str, option: str) -> list[str]:
    """Return the names in a list joined by commas, each once.

    Raises:
        typer.BadParameter: there is none.
    """
    names = list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if not names:
        raise typer.BadParameter(f"{option} has no name; give one, or several joined by commas")
    return names


# -- passwords


def given_password(username: str, option: str | None, from_stdin: bool, ask: bool) -> str | None:
    """Return the password for a user: of the option, from stdin, or from the terminal, where it is asked for twice.

    Args:
        username: name of the user.
        option: value of ``-p``; a warning on stderr says that others can read it.
        from_stdin: read the first line of stdin.
        ask: ask on the terminal if it is not given otherwise.

    Raises:
        typer.BadParameter: it is given twice, is no valid secret, or there is no terminal; the text does not have it.
    """
    from rocketbroker.auth.errors import AuthValueError
    from rocketbroker.auth.users import check_secret

    if option is not None and from_stdin:
        raise typer.BadParameter("give either -p or --password-stdin")
    if option is not None:
        say("mqadmin: warning: others can read -p in the list of processes; use --password-stdin", err=True)
        password = option
    elif from_stdin:
        password = _first_line()
    elif ask:
        password = _asked(username)
    else:
        return None
    try:
        return check_secret(username, password)
    except AuthValueError as error:
        raise typer.BadParameter(str(error)) from None


def _first_line() -> str:
    data = sys.stdin.buffer.readline(_LONGEST_INPUT).removesuffix(b"\n").removesuffix(b"\r")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"--password-stdin: byte {error.start + 1} is not UTF-8") from None


def _asked(username: str) -> str:
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask for the password; pipe it in with --password-stdin")
    try:
        password = ask_hidden(f"Password of user {username}: ")
        again = ask_hidden("Once more: ")
    except EOFError:
        raise typer.BadParameter("the terminal ended before the password; nothing was changed") from None
    if password != again:
        raise typer.BadParameter("the two passwords differ; nothing was changed")
    return password


# -- changes


def _word(choice: StrEnum | None) -> str | None:
    """Return the text to send: bodies have members of an enum by their names."""
    return None if choice is None else choice.value


@sub_command("createUser", dry_run=True)
async def create_user(
    admin: AdminClient,
    username: Username,
    password: Password = None,
    password_stdin: PasswordStdin = False,
    user_type: Type = None,
    broker_addr: OnBroker = None,
    cluster_name: OnCluster = None,
) -> Report:
    """Create a user of access control, and ask for the password."""
    from rocketbroker.auth.errors import AuthValueError
    from rocketbroker.auth.users import check_name

    try:
        check_name(username)
    except AuthValueError as error:
        raise typer.BadParameter(f"-u: {error}") from None
    addresses = await brokers_to_change(admin, broker_addr, cluster_name)
    secret = given_password(username, password, password_stdin, ask=True)
    user = UserInfo(username, secret, _word(user_type))
    return await changed(
        "create user to {} success.",
        addresses,
        lambda address: admin.create_user(address, user),
        {"username": username, "userType": user_type or UserType.NORMAL},
    )


@sub_command("updateUser", dry_run=True)
async def update_user(
    admin: AdminClient,
    username: Username,
    password: Password = None,
    password_stdin: PasswordStdin = False,
    ask_password: Annotated[bool, typer.Option("--ask-password", help="Ask for a new password.")] = False,
    user_type: Type = None,
    user_status: Annotated[
        UserStatus | None,
        typer.Option("-s", "--userStatus", case_sensitive=False, help="Reject all requests of a disabled user."),
    ] = None,
    broker_addr: OnBroker = None,
    cluster_name: OnCluster = None,
) -> Report:
    """Change the password, type or status of a user."""
    if not any((password is not None, password_stdin, ask_password, user_type, user_status)):
        raise typer.BadParameter(
            "there is nothing to change; give --ask-password, --password-stdin, -t (type) or -s (status)"
        )
    addresses = await brokers_to_change(admin, broker_addr, cluster_name)
    secret = given_password(username, password, password_stdin, ask_password)
    user = UserInfo(username, secret, _word(user_type), _word(user_status))
    data = {
        "username": username,
        "userType": user_type,
        "userStatus": user_status,
        "passwordChanged": secret is not None,
    }
    return await changed(
        "update user to {} success.", addresses, lambda address: admin.update_user(address, user), data
    )


@sub_command("deleteUser", deletes="Delete user {username} and its policies?", dry_run=True)
async def delete_user(
    admin: AdminClient, username: Username, broker_addr: OnBroker = None, cluster_name: OnCluster = None
) -> Report:
    """Delete a user and its policies."""
    addresses = await brokers_to_change(admin, broker_addr, cluster_name)
    return await changed(
        "delete user to {} success.",
        addresses,
        lambda address: admin.delete_user(address, username),
        {"username": username},
    )


# -- reads


class UserRow(msgspec.Struct, rename="camel"):
    """A user as it is shown."""

    username: str
    user_type: str | None
    user_status: str | None


class UsersOfBroker(msgspec.Struct, rename="camel"):
    """The users of a broker, or the error that kept it from answering."""

    addr: str
    users: list[UserRow]
    error: str | None = None


@sub_command("getUser", reads=True)
async def get_user(
    admin: AdminClient, username: Username, broker_addr: OfBroker = None, cluster_name: OfCluster = None
) -> Report:
    """Show type and status of a user."""

    async def found(address: str) -> list[UserInfo]:
        user = await admin.get_user(address, username)
        return [user] if user else []

    rows = await _users(await chosen_masters(admin, broker_addr, cluster_name), found)
    for row in rows:
        if not row.users and row.error is None:
            row.error = f"there is no user {username}; listUser shows all"
    return _users_report(rows)


@sub_command("listUser", reads=True)
async def list_user(
    admin: AdminClient,
    name_part: Annotated[str | None, typer.Option("-f", "--filter", metavar="TEXT", help="Part of the names.")] = None,
    broker_addr: OfBroker = None,
    cluster_name: OfCluster = None,
) -> Report:
    """List users with type and status."""
    addresses = await chosen_masters(admin, broker_addr, cluster_name)
    rows = await _users(addresses, lambda address: admin.list_user(address, name_part))
    return _users_report(rows, ends="get user from {} success." if cluster_name else "")


async def _users(addresses: Sequence[str], ask: Callable[[str], Awaitable[Sequence[UserInfo]]]) -> list[UsersOfBroker]:
    rows = []
    for address in addresses:
        try:
            users = await ask(address)
        except RocketBrokerError as error:
            rows.append(UsersOfBroker(address, [], with_hint(error)))
        else:
            shown = [UserRow(each.username or "", each.user_type, each.user_status) for each in users]
            rows.append(UsersOfBroker(address, sorted(shown, key=lambda user: user.username)))
    return rows


def _users_report(rows: Sequence[UsersOfBroker], *, ends: str = "") -> Report:
    """Return a table for each broker with its address above, or below in a line such as ``ends``."""
    parts: list[str | Table] = []
    for row in rows:
        if len(rows) > 1 and not ends:
            parts.append(f"# {row.addr}")
        if row.users:
            cells = [[user.username, STARS, user.user_type or "-", user.user_status or "-"] for user in row.users]
            parts += [Table(_COLUMNS, cells), *([ends.format(row.addr)] if ends else [])]
    return Report({"brokers": rows}, parts, [f"{row.addr}: {row.error}" for row in rows if row.error])


# -- copies


@sub_command("copyUser", dry_run=True)
async def copy_user(
    admin: AdminClient,
    from_broker: FromBroker,
    to_broker: ToBroker,
    usernames: Annotated[
        str | None, typer.Option("-u", "--usernames", metavar="NAME,...", help="These users only.")
    ] = None,
) -> Report:
    """Copy users from a broker to another."""
    if usernames is None:
        wanted = [user.username or "" for user in await admin.list_user(from_broker)]
    else:
        wanted = names_in(usernames, "-u")
    copied, lines, failures = [], [], []
    for name in wanted:
        try:
            lines.append(await _copy(admin, name, from_broker, to_broker))
            copied.append(name)
        except (RocketBrokerError, LookupError) as error:
            reason = with_hint(error) if isinstance(error, RocketBrokerError) else error.args[0]
            failures.append(f"user {name}: {reason}")
    return Report({"fromBroker": from_broker, "toBroker": to_broker, "users": copied}, lines, failures)


async def _copy(admin: AdminClient, name: str, source: str, target: str) -> str:
    """Copy a user and return the line about it.

    Raises:
        LookupError: the source has no such user, or does not tell the password that a new user needs.
    """
    user = await admin.get_user(source, name)
    if user is None:
        raise LookupError(f"{source} has no such user")
    known = await admin.get_user(target, name)
    done = f"copy user of {name} from {source} to {target} success."
    if known is not None:
        await admin.update_user(target, user)
        return done if user.password else f"{done} {source} does not tell passwords, so that of {target} stays."
    if not user.password:
        create = f"mqadmin createUser -b {target} -u {name} -t {user.user_type or UserType.NORMAL}"
        raise LookupError(f"{source} does not tell passwords, and {target} has no such user; run {create}")
    await admin.create_user(target, user)
    return done
