"""Users and policies of a cluster for a proxy in front of it (ClusterMetadataService of Apache's proxy).

Brokers with different names keep tables of their own, which ``mqadmin`` with ``-c`` holds equal. A proxy follows one:
the first by name that gives a copy. It stays with it, and keeps the last copy, for ``userCacheExpiredSeconds`` without
an answer; then it follows the next. From the broker that it follows, an older table than it has is not taken.

A copy has a MAC over a nonce that is new for each request, so nothing has to outlive a restart of the proxy: a first
answer is proved as any other is, and an earlier one does not count again. Brokers of Apache prove nothing; their users
are taken only with ``acceptUnprovenUsers=true``. A broker that has proved its answer once must do so from then on:
whoever is on the path could leave out the proof.

Apache's proxy asks any broker of the cluster, a different one each time.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection
from shlex import quote
from typing import Final

from rocketbroker.auth.access_copy import AccessCopy, CopiedUsers, users_of_copy, users_of_lists
from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.secret_seal import NONCE_LENGTH, SecretSeal
from rocketbroker.codec.remoting.bodies.auth import AclInfo, UserInfo
from rocketbroker.codec.remoting.bodies.remoting_serializable import decode_body
from rocketbroker.codec.remoting.bodies.route import BrokerData
from rocketbroker.codec.remoting.headers.auth import (
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    ListUsersResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, from_ext_fields, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import BrokerResponseError, CodecError, RemotingConnectError, RemotingError
from rocketbroker.common.lifecycle import TaskOwner

log = logging.getLogger(__name__)

# Until the first copy, brokers are asked this often: nothing is served before it.
_FIRST_S: Final = 1.0

Ask = Callable[[str, Command], Awaitable[Command]]


class ClusterUsers:
    """Follows the table of a broker while it is started.

    Args:
        copy: takes the users and policies.
        seal: seals secrets in copies; the same as that of the brokers.
        config: times.
        brokers: returns the registered brokers.
        ask: returns a broker's answer, by its address.

    Attributes:
        problem: reason why no users are known; empty once they are.
    """

    def __init__(
        self,
        copy: AccessCopy,
        seal: SecretSeal,
        config: ProxyConfig,
        brokers: Callable[[], Awaitable[Collection[BrokerData]]],
        ask: Ask,
    ) -> None:
        self._copy = copy
        self._seal = seal
        self._brokers = brokers
        self._ask = ask
        self._refresh_s = min(config.user_cache_refresh_seconds, config.acl_cache_refresh_seconds)
        self._expires_s = config.user_cache_expired_seconds
        self._tasks = TaskOwner("ClusterUsers")
        self._followed = ""
        self._accepts_unproven = config.accept_unproven_users
        # Names of brokers whose answers had a proof.
        self._proved: set[str] = set()
        self._version = (0, 0)
        self._answered_at = float("-inf")
        self._logged = ""
        self.problem = "the brokers have not been asked yet"

    async def start(self) -> None:
        """Take a first copy, if a broker is there, and follow its table."""
        await self.follow()
        self._tasks.forever(self._run, "follow")

    async def stop(self) -> None:
        await self._tasks.stop()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_FIRST_S if self.problem else self._refresh_s)
            await self.follow()

    async def follow(self) -> None:
        """Ask the broker that is followed; without an answer for too long, the first one that answers."""
        try:
            brokers = {each.broker_name: each for each in await self._brokers() if each.broker_addrs}
        except RemotingError as error:
            self._note(str(error))
            return
        reasons = []
        for name in self._candidates(brokers):
            broker = brokers.get(name)
            try:
                if broker is None:
                    raise RemotingConnectError("it is not registered at the name servers")
                found = await self._fetch(name, _address_of(broker))
            except (BrokerResponseError, RemotingError, CodecError) as error:
                reasons.append(f"broker {name}: {error}")
            else:
                self._answered_at = asyncio.get_running_loop().time()
                await self._take(broker, found)
                # Not before: a call that comes until then would be checked by no users at all.
                self._note("")
                return
        self._note("; ".join(reasons) or "no broker is registered at the name servers")

    def _candidates(self, registered: Collection[str]) -> list[str]:
        """Return the names of the brokers to ask, in order."""
        if self._followed and asyncio.get_running_loop().time() < self._answered_at + self._expires_s:
            return [self._followed]
        return sorted(registered, key=lambda name: (name != self._followed, name))

    async def _fetch(self, name: str, address: str) -> CopiedUsers:
        """Return the users and policies of a broker.

        Raises:
            BrokerResponseError: It refuses.
            RemotingError: It does not answer.
            CodecError: The answer cannot be read.
        """
        nonce = secrets.token_hex(NONCE_LENGTH)
        header = ListUsersRequestHeader(copy_key_id=self._seal.key_id, copy_nonce=nonce)
        answer = await self._ask(address, request(RequestCode.AUTH_LIST_USER, header))
        body, tag = bytes(answer.body), from_ext_fields(answer.header, ListUsersResponseHeader).copy_tag
        if tag is not None:
            self._seal.check_copy(nonce, body, tag)
            self._proved.add(name)
            return await asyncio.to_thread(users_of_copy, body, self._seal)
        # A broker of Apache does not know of copies, and answers passwords in clear. Whoever is on the path can do so.
        if not self._accepts_unproven:
            raise CodecError(
                "its answer has no proof that it knows the inner credentials. Brokers of RocketMQ give none: to take "
                "their users, set acceptUnprovenUsers=true, and use TLS towards them"
            )
        if name in self._proved:
            raise CodecError(
                "its answer has no proof that it knows the inner credentials, and earlier ones had: somebody may "
                "answer in its place. If it was replaced by a broker of RocketMQ, restart the proxy"
            )
        answer = await self._ask(address, request(RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader()))
        policies = bytes(answer.body)
        users = decode_body(body, list[UserInfo]) if body else []
        return users_of_lists(users, decode_body(policies, list[AclInfo]) if policies else [])

    async def _take(self, broker: BrokerData, found: CopiedUsers) -> None:
        name, option = broker.broker_name, f"-c {quote(broker.cluster)}"
        if name != self._followed:
            log.info("access control: users and policies are those of broker %s", name)
        elif found.version < self._version:
            return
        self._followed, self._version = name, found.version
        if self._copy.differs(found):
            older = self._copy.rules
            self._copy.publish(await asyncio.to_thread(AccessRules, found.users, found.acls, older, option))
            log.info("access control: %d users of broker %s", len(found.users), name)

    def _note(self, problem: str) -> None:
        """Log a problem once; calls are refused for it as long as no users are known."""
        if problem != self._logged:
            self._logged = problem
            kept = (
                f"users and policies stay those of broker {self._followed}" if self._followed else "no users are known"
            )
            if problem:
                log.warning("access control: %s: %s", kept, problem)
        if not self._followed or not problem:
            self.problem = problem


def _address_of(broker: BrokerData) -> str:
    """Return the address of the master, or of a slave that has its table without one."""
    return broker.broker_addrs[min(broker.broker_addrs)]
