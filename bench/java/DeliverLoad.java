import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends at a steady rate to a consumer of the same process: the time from just before the send to the delivery. That is
 * a push consumer, or threads that pop and acknowledge. The first third of the messages is warm-up.
 */
final class DeliverLoad {
    private static final int BODY_BYTES = 128;
    private static final int POP_BATCH = 32;
    private static final String GROUP = "bench_deliver";
    private static final int REBALANCE_MS = 5_000;
    private static final int LAST_DELIVERY_MS = 1_500;
    private static final int LAST_DELIVERY_LIMIT_MS = 10_000;
    private static final long NAP_NS = 50_000;
    private static final String NUMBER = "number";
    private static final String SENT_AT = "sentAt";

    private final String namesrv;
    private final String topic;
    private final int rate;
    private final int seconds;
    private final int poppers;
    /** Latency in ns by the number of the message: one delivered again counts once. */
    private final Map<Integer, Long> delivered = new ConcurrentHashMap<>();
    private volatile boolean stopped;

    DeliverLoad(String namesrv, String topic, int rate, int seconds, int poppers) {
        this.namesrv = namesrv;
        this.topic = topic;
        this.rate = rate;
        this.seconds = seconds;
        this.poppers = poppers;
    }

    Outcome run() throws Exception {
        DefaultMQProducer producer = Clients.producer(namesrv);
        producer.start();
        // The topic must be there before the consumer asks for its queues.
        producer.send(new Message(topic, new byte[BODY_BYTES]));
        Consumer consumer = poppers > 0 ? popping() : pushing();
        Thread.sleep(REBALANCE_MS);
        int messages = rate * seconds;
        int warmUp = messages / 3;
        sendAll(producer, messages, warmUp);
        awaitLast(messages - warmUp);
        double found = LastMessage.find(producer, namesrv, topic);
        long[] latencies = delivered.values().stream().mapToLong(Long::longValue).sorted().toArray();
        producer.shutdown();
        consumer.stop();
        return new Outcome()
                .latencies(latencies)
                .figure("found", found)
                .count("done", latencies.length)
                .count("expected", messages - warmUp);
    }

    /** A running consumer. */
    private interface Consumer {
        void stop() throws Exception;
    }

    private Consumer pushing() throws Exception {
        DefaultMQPushConsumer consumer = Clients.consumer(namesrv, GROUP);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            take(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer::shutdown;
    }

    private Consumer popping() throws Exception {
        PopClient client = new PopClient(namesrv, topic, GROUP);
        ExecutorService pool = Executors.newFixedThreadPool(poppers);
        List<Future<?>> working = new ArrayList<>();
        for (int i = 0; i < poppers; i++) {
            working.add(pool.submit(() -> popUntilStopped(client)));
        }
        return () -> {
            pool.shutdown();
            stopped = true;
            for (Future<?> each : working) {
                each.get();
            }
            client.shutdown();
        };
    }

    private Void popUntilStopped(PopClient client) throws Exception {
        while (!stopped) {
            List<MessageExt> popped = client.pop(POP_BATCH);
            take(popped);
            if (!popped.isEmpty()) {
                client.ack(popped);
            }
        }
        return null;
    }

    private void sendAll(DefaultMQProducer producer, int messages, int warmUp) throws Exception {
        long gap = TimeUnit.SECONDS.toNanos(1) / rate;
        long due = System.nanoTime();
        for (int i = 0; i < messages; i++) {
            while (System.nanoTime() < due) {
                LockSupport.parkNanos(NAP_NS);
            }
            due += gap;
            Message message = new Message(topic, new byte[BODY_BYTES]);
            message.putUserProperty(SENT_AT, Long.toString(System.nanoTime()));
            if (i >= warmUp) {
                message.putUserProperty(NUMBER, Integer.toString(i));
            }
            producer.send(message);
        }
    }

    private void awaitLast(int expected) throws InterruptedException {
        Thread.sleep(LAST_DELIVERY_MS);
        long limit = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LAST_DELIVERY_LIMIT_MS);
        while (delivered.size() < expected && System.nanoTime() < limit) {
            Thread.sleep(10);
        }
    }

    private void take(List<MessageExt> messages) {
        long now = System.nanoTime();
        for (MessageExt message : messages) {
            String number = message.getUserProperty(NUMBER);
            if (number != null) {
                long sentAt = Long.parseLong(message.getUserProperty(SENT_AT));
                delivered.putIfAbsent(Integer.parseInt(number), now - sentAt);
            }
        }
    }
}
