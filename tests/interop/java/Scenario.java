import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Does what a test says, one line of `file` after the other: a verb and name=value, parted by tabs. Prints DONE and the
 * line's number after each, or FAILED, the number and why.
 *
 * <p>consume starts a push consumer called `name`, which prints what it gets as GOT-name; it answers by the tag: later
 * fails always, once at its first attempt, level5 at its first attempt with delay level 5, dead with level -1, hang
 * never answers. send sends, and prints REFUSED with the number and why where `refused` is given; dead reads
 * %DLQ%group, and sends what it reads anew where `resend` is given; key and view look for messages, offsets for the
 * places of a time. `trace` has producer and consumers report to the trace topic. Pop.java knows more verbs.
 */
public class Scenario {
    static final Map<String, DefaultMQPushConsumer> CONSUMERS = new HashMap<>();
    static DefaultMQProducer producer;

    public static void main(String[] args) throws Exception {
        new Scenario().run(new Options(args));
    }

    void run(Options options) throws Exception {
        producer = new DefaultMQProducer("PG_Scenario", options.number("trace", 0) == 1, null);
        options.connect(producer, "send");
        producer.setSendMsgTimeout(30_000);
        producer.setPollNameServerInterval(1000);
        producer.start();
        System.out.println("STARTED");
        for (int number = 0; ; number++) {
            List<String> lines = complete(options.text("file"));
            while (lines.size() <= number) {
                Thread.sleep(20);
                lines = complete(options.text("file"));
            }
            String[] words = lines.get(number).split("\t");
            try {
                act(words[0], new Options(Arrays.copyOfRange(words, 1, words.length)), options);
                System.out.println("DONE\t" + number);
            } catch (Exception failure) {
                System.out.println("FAILED\t" + number + "\t" + failure.toString().replace('\n', ' '));
            }
        }
    }

    private static List<String> complete(String file) throws Exception {
        String text = new String(Files.readAllBytes(Paths.get(file)), StandardCharsets.UTF_8);
        String lines = text.substring(0, text.lastIndexOf('\n') + 1);
        return lines.isEmpty() ? List.of() : Arrays.asList(lines.split("\n"));
    }

    void act(String verb, Options step, Options all) throws Exception {
        switch (verb) {
            case "consume":
                consume(step, all);
                break;
            case "stop":
                CONSUMERS.remove(step.text("name")).shutdown();
                break;
            case "send":
                send(step);
                break;
            case "dead":
                dead(step, all);
                break;
            case "key":
                Messages.print("KEY", producer.queryMessage(step.text("topic"), step.text("key"),
                    step.number("max", 32), Long.parseLong(step.text("begin")), Long.parseLong(step.text("end")))
                    .getMessageList());
                break;
            case "view":
                Messages.print("VIEW", List.of(producer.viewMessage(step.text("topic"), step.text("id"))));
                break;
            case "compress":
                compress(step.text("by"));
                break;
            case "offsets":
                for (MessageQueue queue : producer.fetchPublishMessageQueues(step.text("topic"))) {
                    System.out.println("OFFSET\t" + queue.getQueueId() + "\t"
                        + producer.searchOffset(queue, Long.parseLong(step.text("at"))));
                }
                break;
            default:
                throw new IllegalArgumentException("verb " + verb);
        }
    }

    private void consume(Options step, Options all) throws Exception {
        String name = step.text("name");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(step.text("group"),
            all.number("trace", 0) == 1, null);
        all.connect(consumer, name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(step.text("from", "CONSUME_FROM_FIRST_OFFSET")));
        consumer.setConsumeTimestamp(step.text("timestamp", "20200101000000"));
        consumer.setMaxReconsumeTimes(step.number("max", -1));
        consumer.setConsumeTimeout(step.number("timeout", 15));
        consumer.setPollNameServerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(200);
        prepare(consumer, step);
        if (step.text("model", "").equals("BROADCASTING")) {
            Push.broadcast(consumer);
        }
        String[] topics = step.text("topic").split(",");
        String sql = step.text("sql", "");
        for (String topic : topics) {
            if (sql.isEmpty()) {
                consumer.subscribe(topic, step.text("expression", "*"));
            } else {
                consumer.subscribe(topic, MessageSelector.bySql(sql));
            }
        }
        int suspendMillis = step.number("suspend", -1);
        if (step.text("listener", "").equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                Messages.print("GOT-" + name, messages);
                context.setSuspendCurrentQueueTimeMillis(suspendMillis);
                return fails(messages.get(0), null) ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                    : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                Messages.print("GOT-" + name, messages);
                return fails(messages.get(0), context) ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        CONSUMERS.put(name, consumer);
        while (step.number("wait", 1) == 1 && !hasQueues(consumer, topics)) {
            Thread.sleep(20);
        }
    }

    /** Settings that not all versions of the client have. */
    void prepare(DefaultMQPushConsumer consumer, Options step) throws Exception {
    }

    /** The same for message number n. */
    void prepare(Message message, Options step, int n) {
    }

    Set<MessageQueue> queues(DefaultMQPushConsumer consumer) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet();
    }

    private boolean hasQueues(DefaultMQPushConsumer consumer, String[] topics) {
        List<String> held = new java.util.ArrayList<>();
        for (MessageQueue queue : queues(consumer)) {
            held.add(queue.getTopic());
        }
        return held.containsAll(Arrays.asList(topics));
    }

    private static boolean fails(MessageExt message, ConsumeConcurrentlyContext context) {
        boolean first = message.getReconsumeTimes() == 0;
        switch (String.valueOf(message.getTags())) {
            case "later":
                return true;
            case "once":
                return first;
            case "level5":
                context.setDelayLevelWhenNextConsume(5);
                return first;
            case "dead":
                context.setDelayLevelWhenNextConsume(-1);
                return true;
            case "hang":
                while (first) {
                    try {
                        Thread.sleep(1000);
                    } catch (InterruptedException ended) {
                        return true;
                    }
                }
                return false;
            default:
                return false;
        }
    }

    private void send(Options step) throws Exception {
        int first = step.number("first", 0);
        for (int n = first; n < first + step.number("count", 1); n++) {
            try {
                SendResult result = send(step, n);
                System.out.println(String.join("\t", "SENT", "" + n, result.getMsgId(),
                    "" + result.getMessageQueue().getQueueId(), "" + result.getQueueOffset(),
                    result.getSendStatus().name()));
                System.out.println("OFFSET-ID\t" + n + "\t" + result.getOffsetMsgId());
            } catch (Exception failure) {
                if (step.number("refused", 0) == 0) {
                    throw failure;
                }
                System.out.println("REFUSED\t" + n + "\t" + failure.toString().replace('\n', ' '));
            }
        }
    }

    /** Client 4.9 knows zlib alone. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void compress(String by) throws Exception {
        Class type = Class.forName("org.apache.rocketmq.common.compression.CompressionType");
        DefaultMQProducer.class.getMethod("setCompressType", type).invoke(producer, Enum.valueOf(type, by));
    }

    private SendResult send(Options step, int n) throws Exception {
        Message message = Messages.make(step.text("topic"), n, step.text("tags", "A").split(","));
        int level = step.number("level", 0);
        if (level > 0) {
            message.setDelayTimeLevel(level);
        }
        prepare(message, step, n);
        int keys = step.number("keys", 0);
        if (keys == 0) {
            return producer.send(message);
        }
        return producer.send(message, (queues, each, shard) -> queues.get((Integer) shard % queues.size()), n % keys);
    }

    private static void dead(Options step, Options all) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("CG_Dead");
        all.connect(consumer, "dead");
        consumer.start();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues("%DLQ%" + step.text("group"))) {
            PullResult result = consumer.pull(queue, "*", 0, 32);
            if (result.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException(queue + " " + result);
            }
            for (MessageExt message : result.getMsgFoundList()) {
                String topic = message.getProperty("RETRY_TOPIC");
                Messages.print("DEAD", List.of(message));
                System.out.println(String.join("\t", "ORIGIN", message.getUserProperty("n"), topic,
                    String.valueOf(message.getProperty("ORIGIN_MESSAGE_ID"))));
                if (step.number("resend", 0) == 1) {
                    Message again = new Message(topic, "resent", message.getKeys(), message.getBody());
                    again.setFlag(message.getFlag());
                    again.putUserProperty("n", message.getUserProperty("n"));
                    again.putUserProperty("text", message.getUserProperty("text"));
                    producer.send(again);
                }
            }
        }
        consumer.shutdown();
    }
}
