"""Settings of RocketMQ that this version does not act on: each is rejected, warned of, or silent for a stated reason.

A setting stands in exactly one place: in a model, in `REJECTED`, in `EXPECTED`, or in the names of one `Reason`. Who
serves one moves it from here to its model.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Reason:
    """Settings without effect for the same reason, which starts do not mention one by one."""

    title: str
    why: str
    names: frozenset[str]


_USE_FILES: Final = "and use the file store; docs/how-to/migrate-a-store.md says how a store gets there"
_REPLICATE: Final = "and replicate by brokerRole and brokerId (docs/operations/clusters.md)"
_OTHER_QUEUES: Final = "and send to ordinary topics: messages would be missing in the other queues"
_ONE_EACH: Final = "and start one process for each broker: mqbroker -c FILE -c FILE"

# Rejected where they are on: messages would be stored, replicated or sent otherwise than the file says.
# By name: what is lacking, and what to do besides removing the setting.
REJECTED: Final = {
    "storeType": ("storage in RocksDB", _USE_FILES),
    "configManagerVersion": ("tables in RocksDB", _USE_FILES),
    "transferMetadataJsonToRocksdb": ("tables in RocksDB", _USE_FILES),
    "transferOffsetJsonToRocksdb": ("tables in RocksDB", _USE_FILES),
    "rocksdbCQDoubleWriteEnable": ("queues in RocksDB", _USE_FILES),
    "indexRocksDBEnable": ("an index in RocksDB", _USE_FILES),
    "timerRocksDBEnable": ("timer messages in RocksDB", _USE_FILES),
    "transRocksDBEnable": ("transactions in RocksDB", _USE_FILES),
    "popConsumerKVServiceEnable": ("progress of POP in RocksDB", "and let Apache's broker serve consumers that POP"),
    "messageStorePlugIn": ("plug-ins of the store", "and use the store as it is"),
    "readOnlyCommitLogStorePaths": ("commit log in several directories", "and keep the log in storePathCommitLog"),
    "enableDLegerCommitLog": ("DLedger", _REPLICATE),
    "enableControllerMode": ("controller mode", _REPLICATE),
    "enableControllerInNamesrv": ("controller", _REPLICATE),
    "duplicationEnable": ("confirmation of messages by another system", _REPLICATE),
    "enableLmq": ("LMQ", _OTHER_QUEUES),
    "enableMultiDispatch": ("dispatch to several queues", _OTHER_QUEUES),
    "inBrokerContainer": ("broker container", _ONE_EACH),
    "isInBrokerContainer": ("broker container", _ONE_EACH),
    "isBrokerContainer": ("broker container", _ONE_EACH),
    "socksProxyConfig": ("connections through a SOCKS proxy", "and let the broker reach its name servers directly"),
}
#: RocketMQ's defaults of those that are no switches.
REJECTED_DEFAULTS: Final = {"storeType": "default", "configManagerVersion": "v1", "socksProxyConfig": "{}"}

_NO_COLD_DATA: Final = "consumers that read old messages are not slowed down"
_NO_PROPERTY_CRC: Final = "messages carry the checksum of their body only, which is always checked"

# Worth a warning if the value is not RocketMQ's default. By name: what happens instead, and what to do.
EXPECTED: Final = {
    "coldDataFlowControlEnable": _NO_COLD_DATA,
    "coldDataScanEnable": _NO_COLD_DATA,
    "coldCtrStrategyEnable": _NO_COLD_DATA,
    "enabledAppendPropCRC": _NO_PROPERTY_CRC,
    "forceVerifyPropCRC": _NO_PROPERTY_CRC,
    "enableNetWorkFlowControl": "answers are not delayed by the rate of a connection",
    "lockInStrictMode": "queue locks are those of this broker alone, even while a slave acts as master",
    "clusterTest": "a name server answers for its own brokers only; register the topic here",
    "productEnvName": "a name server answers for its own brokers only; register the topic here",
    "indexFileWriteEnable": "index files are written as long as messageIndexEnable=true; set that to false",
    "indexFileReadEnable": "queries by key read the index files; set messageIndexEnable=false to write none",
    "offsetCheckInSlave": "a slave leaves the check of a pull's offset to its master",
    "timerCongestNumEachSlot": "any number of timer messages may be due at the same time",
    "haMaxTimeSlaveNotCatchup": "only haMaxGapNotInSync decides if a slave is in sync",
    "useDelayLevel": "timer messages of the 5.x SDKs are delivered at their time, not at a delay level",
    "sendLatencyEnable": "sends go to all brokers alike, whatever their latency",
    "startDetectorEnable": "brokers are not probed; a broker that fails is left when its request fails",
    "heartbeatSyncerTopicClusterName": "proxies do not share heartbeats; each knows the clients of its own port",
    "localHostName": "the host's name is used",
    "namesrvDomain": "name servers are those of namesrvAddr; give their addresses there",
    "remotingAccessAddr": "the proxy has no remoting port; clients of 4.x connect to the brokers",
    "enableBatchAck": "acknowledgements of a gRPC request go to the broker one by one",
    # names of earlier versions
    "mapedFileSizeCommitLog": "RocketMQ has dropped this name; write mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "RocketMQ has dropped this name; write mappedFileSizeConsumeQueue",
    "serverLoadBalancerEnabled": "RocketMQ has dropped this name; write serverLoadBalancerEnable",
    "haSlaveFallbehindMax": "RocketMQ has dropped this name; write haMaxGapNotInSync",
    "maxDelayTime": "RocketMQ has dropped this name; write timerMaxDelaySec",
    "filterServerNums": "filter servers ended with RocketMQ 4.3; filter by SQL92 (enablePropertyFilter)",
}


def _reason(title: str, why: str, names: str) -> Reason:
    return Reason(title, why, frozenset(names.split()))


REASONS: Final = (
    _reason(
        "Thread pools and their queues",
        "One event loop handles requests in the order in which they arrive; no pool has a size, and no request but a "
        "send waits in a queue.",
        """
        sendMessageThreadPoolNums putMessageFutureThreadPoolNums pullMessageThreadPoolNums ackMessageThreadPoolNums
        litePullMessageThreadPoolNums processReplyMessageThreadPoolNums queryMessageThreadPoolNums
        adminBrokerThreadPoolNums clientManageThreadPoolNums consumerManageThreadPoolNums heartbeatThreadPoolNums
        loadBalanceProcessorThreadPoolNums recoverThreadPoolNums endTransactionThreadPoolNums asyncSendEnable
        putThreadPoolQueueCapacity pullThreadPoolQueueCapacity litePullThreadPoolQueueCapacity
        ackThreadPoolQueueCapacity replyThreadPoolQueueCapacity queryThreadPoolQueueCapacity
        clientManagerThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity heartbeatThreadPoolQueueCapacity
        endTransactionPoolQueueCapacity adminBrokerThreadPoolQueueCapacity loadBalanceThreadPoolQueueCapacity
        waitTimeMillsInPullQueue waitTimeMillsInLitePullQueue waitTimeMillsInHeartbeatQueue
        waitTimeMillsInTransactionQueue waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
        enableFastChannelEventProcess recoverConcurrently batchDispatchRequestThreadPoolNums enableAcceleratedRecovery
        enableBuildConsumeQueueConcurrently enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit
        scheduleAsyncDeliverMaxResendNum2Blocked maxAsyncPutMessageRequests timerGetMessageThreadNum
        timerPutMessageThreadNum timerEnableDisruptor clientRequestThreadPoolNums defaultThreadPoolNums
        clientRequestThreadPoolQueueCapacity defaultThreadPoolQueueCapacity unRegisterBrokerQueueCapacity
        clientWorkerThreads clientCallbackExecutorThreads clientOnewaySemaphoreValue clientAsyncSemaphoreValue
        disableCallbackExecutor disableNettyWorkerGroup serverWorkerThreads serverCallbackExecutorThreads
        serverSelectorThreads serverOnewaySemaphoreValue serverAsyncSemaphoreValue serverNettyWorkerGroupEnable
        heartbeatSyncerThreadPoolNums heartbeatSyncerThreadPoolQueueCapacity grpcThreadPoolNums
        grpcThreadPoolQueueCapacity grpcProducerThreadPoolNums grpcProducerThreadQueueCapacity
        grpcConsumerThreadPoolNums grpcConsumerThreadQueueCapacity grpcRouteThreadPoolNums
        grpcRouteThreadQueueCapacity grpcClientManagerThreadPoolNums grpcClientManagerThreadQueueCapacity
        grpcTransactionThreadPoolNums grpcTransactionThreadQueueCapacity producerProcessorThreadPoolNums
        producerProcessorThreadPoolQueueCapacity consumerProcessorThreadPoolNums
        consumerProcessorThreadPoolQueueCapacity topicRouteServiceThreadPoolNums
        topicRouteServiceThreadPoolQueueCapacity metadataThreadPoolNums metadataThreadPoolQueueCapacity
        transactionHeartbeatThreadPoolNums transactionHeartbeatThreadPoolQueueCapacity renewThreadPoolNums
        renewMaxThreadPoolNums renewThreadPoolQueueCapacity returnHandleGroupThreadPoolNums
        lockTimeoutMsInHandleGroup rocketmqMQClientNum
        """,
    ),
    _reason(
        "Netty, the JVM and outgoing connections",
        "There is no Netty and no JVM, and connections to name servers and other brokers are few and opened at need.",
        """
        transferMsgByHeap serverPooledByteBufAllocatorEnable useEpollNativeSelector
        connectTimeoutMillis channelNotActiveInterval isScanAvailableNameSrv scanAvailableNameSrv
        clientChannelMaxIdleTimeSeconds clientSocketSndBufSize clientSocketRcvBufSize clientCloseSocketIfTimeout
        clientPooledByteBufAllocatorEnable enableReconnectForGoAway enableTransparentRetry grpcBossLoopNum
        rocketmqHome
        grpcWorkerLoopNum enableGrpcEpoll enablePrintJstack printJstackInMillis printThreadPoolStatusInMillis
        sendHeartbeatTimeoutMillis forwardTimeout compatibleWithOldNameSrv
        """,
    ),
    _reason(
        "Memory, locks and flushing of mapped files",
        "Files are allocated ahead and written by one thread; nothing is locked, warmed, swapped or pooled.",
        """
        useReentrantLockWhenPutMessage useABSLock spinLockCollisionRetreatOptimalDegree topicQueueLockNum
        debugLockEnable transientStorePoolEnable transientStorePoolSize fastFailIfNoBufferInStorePool
        commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog warmMapedFileEnable
        flushLeastPagesWhenWarmMapedFile writeWithoutMmap sharedByteBufferNum putConsumeQueueDataByFileChannel
        wakeCommitWhenPutMessage wakeFlushWhenPutMessage flushCommitLogTimed flushConsumeQueueLeastPages
        flushConsumeQueueThoroughInterval dataReadAheadEnable enableRunningFlagsInFlush
        """,
    ),
    _reason(
        "Recovery and self-checks",
        "A start always checks the records of the log, and rebuilds what queues and index lack.",
        """
        checkCRCOnRecover checkCommitLogOffsetOnRecover commitLogRecoverMaxNum messageIndexSafe
        recheckReputOffsetFromCq enableLogConsumeQueueRepeatedlyBuildWhenRecover correctLogicMinOffsetForceInterval
        correctLogicMinOffsetSleepInterval autoMessageVersionOnTopicLen
        """,
    ),
    _reason(
        "Short cuts of reads and filters",
        "Pulls and filters give the same answers without bit maps, extension files, caches and limits of one scan.",
        """
        enableConsumeQueueExt mappedFileSizeConsumeQueueExt bitMapLengthConsumeQueueExt enableCalcFilterBitMap
        expectConsumerNumUseFilter maxErrorRateOfBloomFilter searchBcqByCacheEnable travelCqFileNumWhenGetMessage
        """,
    ),
    _reason(
        "Files of the timer",
        "Timer messages are found in the log at each start; there is no wheel or timer log on disk to tune.",
        """
        mappedFileSizeTimerLog timerWarmEnable timerWheelSnapshotFlush timerWheelSnapshotIntervalMs
        timerProgressLogIntervalMs timerCheckMetricsWhen timerEnableCheckMetrics timerMetricSmallThreshold
        timerSkipUnknownError timerEnableRetryUntilSuccess appendTopicForTimerDeleteKey
        """,
    ),
    _reason(
        "Buffers and revival of POP",
        "Check points of POP are kept in memory and in the log, without the buffers and scans that these tune.",
        """
        popPollingMapSize popPollingMapExpireTimeSeconds reviveQueueNum reviveInterval reviveMaxSlow reviveScanTime
        enableSkipLongAwaitingAck reviveAckWaitMs enablePopLog enablePopBufferMerge popCkStayBufferTime
        popCkStayBufferTimeOut popCkOffsetMaxQueueSize enablePopBatchAck popLongPollingForceNotifyInterval
        enableNotifyAfterPopOrderLockRelease popConsumerFSServiceInit popReviveMaxReturnSizePerRead
        popReviveConcurrency popReviveMaxAttemptTimes useMessageFilterForNotification
        maxMessageFilterNumForNotification skipWhenCKRePutReachMaxTimes appendAckAsync appendCkAsync
        """,
    ),
    _reason(
        "RocksDB",
        "Nothing is stored in RocksDB; the settings that would turn it on are rejected.",
        """
        batchWriteKvCqSize bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin
        combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles
        combineCQPreferCQType combineCQUseRocksdbForLmq enableRocksDBLog iteratorWhenUseRocksdbConsumeQueue
        maxRocksDBIndexQueryDays memTableFlushInterval memTableFlushIntervalMs realTimePersistRocksDBConfig
        rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec
        persistConsumerOffsetIncrementally popConsumerKVServiceInit popConsumerKVServiceLog
        transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads transactionCheckRocksdbQueueCapacity
        transWriteOriginTransHalfEnable useSeparateStorePathForRocksdbCQ useSingleRocksDBForAllConfigs maxCommitJitter
        timerRecallToTimeWheelEnable timerRecallToTimelineEnable timerReputServiceCorePoolSize
        timerReputServiceMaxPoolSize timerReputServiceQueueCapacity timerRocksDBPrecisionMs
        timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan
        timerRocksDBTimeExpiredMaxTps
        """,
    ),
    _reason(
        "Controller, DLedger and synchronous sets of replicas",
        "Roles are fixed by brokerRole; the settings that would turn on a controller or DLedger are rejected.",
        """
        controllerAddr fetchControllerAddrByDnsLookup syncBrokerMetadataPeriod checkSyncStateSetPeriod
        syncControllerMetadataPeriod controllerHeartBeatTimeoutMills brokerElectionPriority allAckInSyncStateSet
        asyncLearner syncFromLastFile maxChecksumRange readUnCommitted enableBatchPush dLegerGroup dLegerPeers
        dLegerSelfId preferredLeaderId storePathDLedgerCommitLog storePathEpochFile storePathBrokerIdentity
        totalReplicas syncMasterFlushOffsetWhenStartup
        jraftConfig controllerType controllerThreadPoolNums controllerRequestThreadPoolQueueCapacity
        controllerDLegerGroup controllerDLegerPeers controllerDLegerSelfId mappedFileSize controllerStorePath
        electMasterMaxRetryCount enableElectUncleanMaster notifyBrokerRoleChanged scanInactiveMasterInterval
        processReadEvent jRaftElectionTimeoutMs jRaftScanWaitTimeoutMs jRaftSnapshotIntervalSecs jRaftGroupId
        jRaftServerId jRaftInitConf jRaftControllerRPCAddr
        """,
    ),
    _reason(
        "Details of tables and clients",
        "Slaves fetch whole tables, versions count every change, and members of a group learn of changes at once.",
        """
        consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep enableSplitMetadata splitMetadataSize
        subscriptionExpiredTimeout realTimeNotifyConsumerChange enableBroadcastOffsetStore
        broadcastOffsetExpireSecond broadcastOffsetExpireMaxSecond
        """,
    ),
    _reason(
        "Broker container",
        "Each broker is a process of its own; mqbroker starts several by one command.",
        """
        brokerConfigPaths updateNamesrvAddrInterval replicasPerDiskPartition logicalDiskSpaceCleanForciblyThreshold
        disappearTimeAfterStart
        """,
    ),
    _reason(
        "Lite topics and LMQ",
        "Lite topics are not served; enableLmq is rejected.",
        """
        enableLmqStats enableLmqQuota maxLmqConsumeQueueNum enableLiteEventMode liteEventCheckInterval
        liteTtlCheckInterval minLiteTTl liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills
        maxLiteSubscriptionCount enableLitePopLog maxClientEventCount liteEventFullDispatchDelayTime
        liteEventFullDispatchDelayTimeForWildcardGroup liteLagLatencyCollectEnable liteLagLatencyMetricsEnable
        liteLagCountMetricsEnable liteLagLatencyTopK maxLiteTopicSize maxLiteRenewNumPerChannel
        maxSyncLiteSubscriptionRate
        """,
    ),
    _reason(
        "Cold data",
        "They tune the flow control of cold data, which this version lacks.",
        """
        usePIDColdCtrStrategy sampleSteps cgColdReadThreshold globalColdReadThreshold timerColdDataCheckIntervalMs
        accessMessageInMemoryHotRatio
        """,
    ),
    _reason(
        "Compacted topics",
        "cleanup.policy=COMPACTION is not served: such a topic rejects sends.",
        """
        enableCompaction compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal
        compactionThreadNum maxOffsetMapSize
        """,
    ),
    _reason(
        "Tiered storage",
        "Old messages stay in the log until they expire; messageStorePlugIn is rejected.",
        """
        commitLogRollingInterval commitLogRollingMinimumSize objectStoreAccessKey objectStoreBucket objectStoreEndpoint
        objectStoreSecretKey readAheadCacheEnable readAheadCacheExpireDuration readAheadCacheSizeThresholdRate
        readAheadMessageCountThreshold readAheadMessageSizeThreshold recordGetMessageResult
        tieredBackendServiceProvider tieredMetadataServiceProvider tieredStorageLevel tieredStoreCommitLogMaxSize
        tieredStoreConsumeQueueMaxSize tieredStoreCrcCheckEnable tieredStoreDeleteFileEnable
        tieredStoreDeleteFileInterval tieredStoreFilePath tieredStoreFileReservedTime tieredStoreGroupCommit
        tieredStoreGroupCommitCount tieredStoreGroupCommitSize tieredStoreGroupCommitTimeout
        tieredStoreIndexFileMaxHashSlotNum tieredStoreIndexFileMaxIndexNum tieredStoreIndexFileRollingIdleInterval
        tieredStoreMaxFallBehindSize tieredStoreMaxGroupCommitCount tieredStoreMaxPendingLimit
        """,
    ),
    _reason(
        "Access control",
        "Users and policies are in memory, and a change of them ends all decisions that followed the older ones: there "
        "is nothing to expire or refresh, except for the copy that mqproxy has.",
        """
        configName userCacheMaxNum userCacheExpiredSecond userCacheRefreshSecond aclCacheMaxNum aclCacheExpiredSecond
        aclCacheRefreshSecond statefulAuthenticationCacheMaxNum statefulAuthenticationCacheExpiredSecond
        statefulAuthorizationCacheMaxNum statefulAuthorizationCacheExpiredSecond aclCacheExpiredSeconds
        enableAclRpcHookForClusterMode
        """,
    ),
    _reason(
        "Statistics and metrics",
        "Figures of messages are exact and counted for all, instead of billed.",
        """
        accountStatsEnable accountStatsPrintZeroValues commercialBaseCount commercialSizePerMsg commercialBigCount
        commercialEnable commercialTimerCount commercialTransCount maxStatsIdleTimeInMinutes enableDetailStat
        autoDeleteUnusedStats enableScheduleMessageStats diskFallRecorded
        transactionMetricFlushInterval printChannelGroups printChannelGroupsMinNum
        metricCollectorMode metricCollectorAddress
        """,
    ),
    _reason(
        "Caches and remoting port of the proxy",
        "The gRPC port asks the brokers instead of caches, and there is no remoting port beside it.",
        """
        rocketMQClusterName heartbeatSyncerTopicName namesrvDomainSubgroup
        channelExpiredInSeconds contextExpiredInSeconds grpcProxyRelayRequestTimeoutInSeconds
        topicRouteServiceCacheExpiredSeconds topicRouteServiceCacheMaxNum topicConfigCacheExpiredSeconds
        topicConfigCacheMaxNum subscriptionGroupConfigCacheExpiredSeconds subscriptionGroupConfigCacheMaxNum
        transactionHeartbeatBatchNum transactionDataExpireScanPeriodMillis transactionDataMaxWaitClearMillis
        transactionDataExpireMillis transactionDataMaxNum enableRemotingLocalProxyGrpc localProxyConnectTimeoutMs
        remotingListenPort detectTimeout detectInterval remotingHeartbeatThreadPoolNums
        remotingTopicRouteThreadPoolNums remotingSendMessageThreadPoolNums remotingPullMessageThreadPoolNums
        remotingUpdateOffsetThreadPoolNums remotingDefaultThreadPoolNums remotingHeartbeatThreadPoolQueueCapacity
        remotingTopicRouteThreadPoolQueueCapacity remotingSendThreadPoolQueueCapacity
        remotingPullThreadPoolQueueCapacity remotingUpdateOffsetThreadPoolQueueCapacity
        remotingDefaultThreadPoolQueueCapacity remotingWaitTimeMillsInSendQueue remotingWaitTimeMillsInPullQueue
        remotingWaitTimeMillsInHeartbeatQueue remotingWaitTimeMillsInUpdateOffsetQueue
        remotingWaitTimeMillsInTopicRouteQueue remotingWaitTimeMillsInDefaultQueue
        """,
    ),
    _reason(
        "Not read by RocketMQ 5.5.0 itself",
        "RocketMQ 5.5.0 accepts these names and never asks for their values.",
        """
        flushConsumerOffsetHistoryInterval highSpeedMode cleanOfflineBrokerInterval cleanSwapedMapInterval
        commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum dispatchCqCacheNum
        dispatchCqThreads dispatchFromSenderThread enableAsyncReput enableCleanExpiredOffset
        logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mappedFileSwapEnable
        maxBatchDeleteFilesNum maxRecoveryCommitlogFiles maxSlaveResendLength maxTopicLength pullBatchMaxMessageCount
        putMessageTimeout putMsgIndexHightWater timerInterceptDelayLevel maxReconnectIntervalTimeSeconds
        serverSocketBacklog
        """,
    ),
)


def reason_of(name: str) -> Reason | None:
    """Return the reason of a setting that starts do not mention one by one, None for any other name."""
    return next((reason for reason in REASONS if name in reason.names), None)


def is_default(value: str, default: str | None) -> bool:
    """Return true if a value is RocketMQ's default; letter case and notation of numbers do not count."""
    given, usual = value.strip().lower(), (default or "").strip().lower()
    if given == usual:
        return True
    try:
        return float(given) == float(usual)
    except ValueError:
        return False
