import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A push consumer that prints GOT lines, and QUEUES with its queue ids whenever they change. It ends by itself after
 * stopAfter messages, when that is given; each message takes it takeMillis, number `stuck` for ever; the first `failures`
 * attempts at a message are answered RECONSUME_LATER. A new group starts at `from` (and its `timestamp`). With
 * `change` it subscribes to that expression once `changeAfter` messages came, while a heartbeat is under way.
 */
public final class Push {
    private static final AtomicInteger TAKEN = new AtomicInteger();

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        String topic = options.text("topic");
        int stopAfter = options.number("stopAfter", 0);
        int failures = options.number("failures", 0);
        int delayLevel = options.number("delayLevel", 0);
        int takeMillis = options.number("takeMillis", 0);
        String stuck = options.text("stuck", "");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        options.connect(consumer, "push");
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + options.text("from", "FIRST_OFFSET")));
        consumer.setConsumeTimestamp(options.text("timestamp", consumer.getConsumeTimestamp()));
        consumer.setPersistConsumerOffsetInterval(options.number("persist", 5000));
        if ("BROADCASTING".equals(options.text("model", "CLUSTERING"))) {
            broadcast(consumer);
        }
        String sql = options.text("sql", "");
        if (sql.isEmpty()) {
            consumer.subscribe(topic, options.text("expression", "*"));
        } else {
            consumer.subscribe(topic, MessageSelector.bySql(sql));
        }
        if ("orderly".equals(options.text("listener", "concurrent"))) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                take(messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                pause(messages.get(0).getUserProperty("n").equals(stuck) ? Integer.MAX_VALUE : takeMillis);
                take(messages);
                context.setDelayLevelWhenNextConsume(delayLevel);
                boolean again = messages.get(0).getReconsumeTimes() < failures;
                return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        System.out.println("STARTED");
        String known = "";
        String change = options.text("change", "");
        while (stopAfter == 0 || TAKEN.get() < stopAfter) {
            Thread.sleep(50);
            if (!change.isEmpty() && TAKEN.get() >= options.number("changeAfter", 1)) {
                subscribeAmidHeartbeat(consumer, topic, change);
                change = "";
            }
            String now = queues(consumer, topic);
            if (!now.equals(known)) {
                known = now;
                System.out.println("QUEUES\t" + now + "\t" + System.currentTimeMillis());
            }
        }
        Thread.sleep(options.number("linger", 300)); // what comes beyond would be one too many
        consumer.shutdown();
        System.out.println("DONE");
        System.exit(0);
    }

    /** The client skips the heartbeat that should tell of the change, as it does while another one is under way. */
    private static void subscribeAmidHeartbeat(DefaultMQPushConsumer consumer, String topic, String expression)
        throws Exception {
        Object factory = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory();
        java.lang.reflect.Field field = factory.getClass().getDeclaredField("lockHeartbeat");
        field.setAccessible(true);
        java.util.concurrent.locks.Lock lock = (java.util.concurrent.locks.Lock) field.get(factory);
        Thread heartbeat = new Thread(lock::lock);
        heartbeat.start();
        heartbeat.join();
        consumer.subscribe(topic, expression);
        System.out.println("CHANGED\t" + expression);
    }

    private static void pause(int millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private static void take(List<MessageExt> messages) {
        Messages.print("GOT", messages);
        TAKEN.addAndGet(messages.size());
    }

    private static String queues(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic)).map(MessageQueue::getQueueId).sorted()
            .map(String::valueOf).collect(java.util.stream.Collectors.joining(","));
    }

    /** The package of MessageModel is not the same in 4.9 and 5.x. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (java.lang.reflect.Method method : consumer.getClass().getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, Enum.valueOf((Class) method.getParameterTypes()[0], "BROADCASTING"));
            }
        }
    }
}
