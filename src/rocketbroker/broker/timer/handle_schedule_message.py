"""Redirect of delayed messages to their system topic before they are stored (HookUtils.handleScheduleMessage)."""

from collections.abc import Callable

from rocketbroker.broker.schedule.delay_rewrite import DELAY, delay_rewrite
from rocketbroker.broker.timer.timer_rewrite import TimerLimits, forget_delivery_time, timer_rewrite
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.message_sys_flag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    transaction_value,
)
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner


class HandleScheduleMessage:
    """Redirects messages with a delay level or a delivery time before they are stored.

    Args:
        config: the limits of timer messages.
        clock: real time, compared with delivery times.
        max_delay_level: highest level of messageDelayLevel.
        precision_ms: returns the precision of the timer.
    """

    def __init__(
        self, config: MessageStoreConfig, clock: Clock, max_delay_level: int, precision_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._clock = clock
        self._max_delay_level = max_delay_level
        self._precision_ms = precision_ms

    def __call__(self, message: MessageExtBrokerInner) -> None:
        """Change topic, queue and properties of a message with a delay level or a delivery time.

        With both, the level counts. Prepared and rolled-back messages of transactions are left alone.

        Raises:
            BrokerResponseError: See ``delay_rewrite`` and ``timer_rewrite``.
        """
        if transaction_value(message.sys_flag) not in {TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE}:
            return
        if (get_property(message.properties, DELAY) or b"0") != b"0":
            waits = message.topic
            delay_rewrite(message, self._max_delay_level)
            if message.topic != waits:
                forget_delivery_time(message)
                return
        config = self._config
        max_delay_ms = config.timer_max_delay_sec * 1000
        timer_rewrite(
            message, TimerLimits(config.timer_wheel_enable, max_delay_ms, self._precision_ms()), self._clock.time_ms()
        )
