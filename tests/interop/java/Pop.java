import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * Scenario with what only clients of 5.x know. With `pop=1` a consumer lets the broker assign its queues; queues prints
 * them as HELD lines. lite starts a DefaultLitePullConsumer, which prints what it polls within `seconds` as GOT-name.
 * send gives message n the priority n modulo `priorities` where that is given.
 *
 * <p>pop, ack, change and notification are single requests to `broker`, as the proxy sends them. pop prints what it got
 * as GOT-name and POPPED with the name, the status and the number of messages; `attempts` tries again up to so often until
 * something is found. ack and change name messages by their numbers, and mean the last that came of each; they print
 * ACKED or CHANGED with the number and the status. forward sends messages that were popped to topic `to`, as they came.
 */
public final class Pop extends Scenario {
    private static final long TIMEOUT_MILLIS = 30_000;
    private final Map<String, MessageExt> popped = new HashMap<>();
    private MQClientAPIExt client;

    public static void main(String[] args) throws Exception {
        new Pop().run(new Options(args));
    }

    @Override
    void prepare(DefaultMQPushConsumer consumer, Options step) {
        consumer.setClientRebalance(step.number("pop", 0) == 0);
        consumer.setPopInvisibleTime(step.number("invisible", 60_000));
        consumer.setPopBatchNums(step.number("batch", 32));
    }

    @Override
    void prepare(Message message, Options step, int n) {
        int priorities = step.number("priorities", 0);
        if (priorities > 0) {
            message.setPriority(n % priorities);
        }
    }

    @Override
    Set<MessageQueue> queues(DefaultMQPushConsumer consumer) {
        Set<MessageQueue> queues = new HashSet<>(super.queues(consumer));
        queues.addAll(consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getPopProcessQueueTable().keySet());
        return queues;
    }

    @Override
    void act(String verb, Options step, Options all) throws Exception {
        switch (verb) {
            case "queues":
                held(step.text("name"), step.text("topic"));
                break;
            case "lite":
                lite(step, all);
                break;
            case "pop":
                pop(step, all);
                break;
            case "ack":
                ack(step, all);
                break;
            case "change":
                change(step, all);
                break;
            case "notification":
                notification(step, all);
                break;
            case "forward":
                for (String number : step.text("numbers").split(",")) {
                    MessageExt message = popped.get(number);
                    message.setTopic(step.text("to"));
                    producer.send(message);
                }
                break;
            default:
                super.act(verb, step, all);
        }
    }

    private static void held(String name, String topic) {
        RebalanceImpl rebalance = CONSUMERS.get(name).getDefaultMQPushConsumerImpl().getRebalanceImpl();
        print(name, topic, "POP", rebalance.getPopProcessQueueTable().keySet());
        print(name, topic, "PULL", rebalance.getProcessQueueTable().keySet());
    }

    private static void print(String name, String topic, String mode, Set<MessageQueue> queues) {
        for (MessageQueue queue : queues) {
            if (queue.getTopic().equals(topic)) {
                System.out.println(String.join("\t", "HELD", name, mode, Integer.toString(queue.getQueueId())));
            }
        }
    }

    private static void lite(Options step, Options all) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(step.text("group"));
        all.connect(consumer, step.text("name"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(step.text("topic"), "*");
        consumer.start();
        long deadline = System.currentTimeMillis() + step.number("seconds", 5) * 1000L;
        for (int left = step.number("count", Integer.MAX_VALUE); left > 0 && System.currentTimeMillis() < deadline; ) {
            List<MessageExt> messages = consumer.poll(200);
            Messages.print("GOT-" + step.text("name"), messages);
            left -= messages.size();
        }
        consumer.commitSync();
        consumer.shutdown();
    }

    private MQClientAPIExt client(Options all) {
        if (client == null) {
            org.apache.rocketmq.client.ClientConfig config = new org.apache.rocketmq.client.ClientConfig();
            all.connect(config, "api");
            client = new MQClientAPIExt(config, new NettyClientConfig(), null, null);
            client.start();
        }
        return client;
    }

    private void pop(Options step, Options all) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(step.text("group"));
        header.setTopic(step.text("topic"));
        header.setQueueId(step.number("queue", -1));
        header.setMaxMsgNums(step.number("max", 32));
        header.setInvisibleTime(step.number("invisible", 60_000));
        header.setPollTime(step.number("poll", 3000));
        header.setInitMode(step.number("init", 0));
        header.setExpType(step.text("type", "TAG"));
        header.setExp(step.text("expression", "*"));
        header.setOrder(step.number("order", 0) == 1);
        header.setAttemptId(step.text("attempt", null));
        for (int attempt = 0; attempt < step.number("attempts", 1); attempt++) {
            header.setBornTime(System.currentTimeMillis());
            PopResult result = client(all).popMessageAsync(all.text("broker"), "broker-a", header, TIMEOUT_MILLIS).get();
            List<MessageExt> messages = result.getPopStatus() == PopStatus.FOUND ? result.getMsgFoundList() : List.of();
            Messages.print("GOT-" + step.text("name"), messages);
            for (MessageExt message : messages) {
                popped.put(message.getUserProperty("n"), message);
            }
            System.out.println(String.join("\t", "POPPED", step.text("name"), result.getPopStatus().name(),
                Integer.toString(messages.size()), Long.toString(result.getRestNum())));
            if (!messages.isEmpty()) {
                break;
            }
        }
    }

    private static String handle(MessageExt message) {
        return message.getProperty("POP_CK");
    }

    private static String realTopic(MessageExt message, String group) {
        return ExtraInfoUtil.getRealTopic(ExtraInfoUtil.split(handle(message)), message.getTopic(), group);
    }

    private void ack(Options step, Options all) throws Exception {
        String group = step.text("group");
        String[] numbers = step.text("numbers").split(",");
        if (step.number("batch", 0) == 1) {
            List<String> handles = new ArrayList<>();
            for (String number : numbers) {
                handles.add(handle(popped.get(number)));
            }
            AckResult result = client(all).batchAckMessageAsync(all.text("broker"), step.text("topic"), group, handles,
                TIMEOUT_MILLIS).get();
            System.out.println(String.join("\t", "ACKED", step.text("numbers"), result.getStatus().name()));
            return;
        }
        for (String number : numbers) {
            MessageExt message = popped.get(number);
            AckMessageRequestHeader header = new AckMessageRequestHeader();
            header.setConsumerGroup(group);
            header.setTopic(realTopic(message, group));
            header.setQueueId(ExtraInfoUtil.getQueueId(ExtraInfoUtil.split(handle(message))));
            header.setOffset(ExtraInfoUtil.getQueueOffset(ExtraInfoUtil.split(handle(message))));
            header.setExtraInfo(handle(message));
            AckResult result = client(all).ackMessageAsync(all.text("broker"), header, TIMEOUT_MILLIS).get();
            System.out.println(String.join("\t", "ACKED", number, result.getStatus().name()));
        }
    }

    private void change(Options step, Options all) throws Exception {
        String group = step.text("group");
        for (String number : step.text("numbers").split(",")) {
            MessageExt message = popped.get(number);
            ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
            header.setConsumerGroup(group);
            header.setTopic(realTopic(message, group));
            header.setQueueId(ExtraInfoUtil.getQueueId(ExtraInfoUtil.split(handle(message))));
            header.setOffset(ExtraInfoUtil.getQueueOffset(ExtraInfoUtil.split(handle(message))));
            header.setExtraInfo(handle(message));
            header.setInvisibleTime((long) step.number("invisible", 60_000));
            AckResult result = client(all).changeInvisibleTimeAsync(all.text("broker"), "broker-a", header,
                TIMEOUT_MILLIS).get();
            System.out.println(String.join("\t", "CHANGED", number, result.getStatus().name()));
            message.getProperties().put("POP_CK", result.getExtraInfo());
        }
    }

    private void notification(Options step, Options all) throws Exception {
        NotificationRequestHeader header = new NotificationRequestHeader();
        header.setConsumerGroup(step.text("group"));
        header.setTopic(step.text("topic"));
        header.setQueueId(step.number("queue", -1));
        header.setPollTime(step.number("poll", 500));
        header.setBornTime(System.currentTimeMillis());
        header.setOrder(step.number("order", 0) == 1);
        header.setAttemptId(step.text("attempt", null));
        boolean found = client(all).notification(all.text("broker"), header, TIMEOUT_MILLIS).get();
        System.out.println(String.join("\t", "NOTIFIED", step.text("group"), Boolean.toString(found)));
    }
}
