import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** Pops of a group from all queues of a topic, and acknowledgements, as Apache's proxy sends them to its broker. */
final class PopClient {
    private static final long TIMEOUT_MS = 30_000;
    private static final long POLL_MS = 5_000;
    private static final long INVISIBLE_MS = 60_000;
    private static final String ALL_TAGS = "*";

    private final MQClientAPIExt api;
    private final String broker;
    private final String brokerName;
    private final String topic;
    private final String group;

    PopClient(String namesrv, String topic, String group) throws Exception {
        ClientConfig config = new ClientConfig();
        Clients.prepared(config, namesrv);
        this.api = new MQClientAPIExt(config, new NettyClientConfig(), null, null);
        this.topic = topic;
        this.group = group;
        api.start();
        api.updateNameServerAddressList(namesrv);
        var data = api.getTopicRouteInfoFromNameServer(topic, TIMEOUT_MS).getBrokerDatas().get(0);
        this.broker = data.selectBrokerAddr();
        this.brokerName = data.getBrokerName();
    }

    /** Waits for messages; none if there are none for five seconds. */
    List<MessageExt> pop(int most) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(-1);
        header.setMaxMsgNums(most);
        header.setInvisibleTime(INVISIBLE_MS);
        header.setPollTime(POLL_MS);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType("TAG");
        header.setExp(ALL_TAGS);
        PopResult found = api.popMessageAsync(broker, brokerName, header, TIMEOUT_MS).get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        return found.getPopStatus() == PopStatus.FOUND ? found.getMsgFoundList() : Collections.emptyList();
    }

    /** Acknowledges messages: one by its own request, several together. */
    void ack(List<MessageExt> messages) throws Exception {
        AckResult result = messages.size() == 1 ? ackOne(messages.get(0)) : ackBatch(messages);
        if (result.getStatus() != AckStatus.OK) {
            throw new IllegalStateException("the broker answered " + result.getStatus());
        }
    }

    private AckResult ackOne(MessageExt message) throws Exception {
        String[] handle = ExtraInfoUtil.split(handle(message));
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(ExtraInfoUtil.getRealTopic(handle, message.getTopic(), group));
        header.setQueueId(ExtraInfoUtil.getQueueId(handle));
        header.setOffset(ExtraInfoUtil.getQueueOffset(handle));
        header.setExtraInfo(handle(message));
        return api.ackMessageAsync(broker, header, TIMEOUT_MS).get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }

    private AckResult ackBatch(List<MessageExt> messages) throws Exception {
        List<String> handles = new ArrayList<>(messages.size());
        for (MessageExt message : messages) {
            handles.add(handle(message));
        }
        return api.batchAckMessageAsync(broker, topic, group, handles, TIMEOUT_MS).get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }

    private static String handle(MessageExt message) {
        return message.getProperty(MessageConst.PROPERTY_POP_CK);
    }

    void shutdown() {
        api.shutdown();
    }
}
