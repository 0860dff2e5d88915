import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** How one call sends: a message and its answer, a message whose answer comes later, or a batch. */
abstract class SendMode {
    private static final int ASYNC_IN_FLIGHT_PER_THREAD = 16;
    private static final int LAST_ANSWERS_SECONDS = 10;

    final DefaultMQProducer producer;
    final SendCounts counts;
    private final String topic;
    private final byte[] body;

    private SendMode(DefaultMQProducer producer, SendCounts counts, String topic, int bodyBytes) {
        this.producer = producer;
        this.counts = counts;
        this.topic = topic;
        this.body = new byte[bodyBytes];
        Arrays.fill(body, (byte) 'x');
    }

    static SendMode of(
            String name, DefaultMQProducer producer, SendCounts counts, String topic, int bodyBytes, int threads) {
        if (name.equals("sync")) {
            return new Sync(producer, counts, topic, bodyBytes);
        }
        if (name.equals("async")) {
            return new Async(producer, counts, topic, bodyBytes, threads * ASYNC_IN_FLIGHT_PER_THREAD);
        }
        if (name.startsWith("batch:")) {
            return new Batch(producer, counts, topic, bodyBytes, number(name), false);
        }
        if (name.startsWith("numbered:")) {
            return new Batch(producer, counts, topic, bodyBytes, number(name), true);
        }
        throw new IllegalArgumentException("no mode " + name + ", there are sync, async, batch:N, numbered:N");
    }

    private static int number(String name) {
        return Integer.parseInt(name.substring(name.indexOf(':') + 1));
    }

    abstract void send(String key) throws Exception;

    /** Waits for answers that are still to come. */
    void finish() throws InterruptedException {}

    Message message() {
        return new Message(topic, "T", body);
    }

    void count(SendResult result, int messages) {
        if (result.getSendStatus() == SendStatus.SEND_OK) {
            counts.taken(messages);
        } else {
            counts.failed(new IllegalStateException("the broker answered " + result.getSendStatus()));
        }
    }

    private static final class Sync extends SendMode {
        Sync(DefaultMQProducer producer, SendCounts counts, String topic, int bodyBytes) {
            super(producer, counts, topic, bodyBytes);
        }

        @Override
        void send(String key) throws Exception {
            Message message = message();
            message.setKeys(key);
            count(producer.send(message), 1);
        }
    }

    private static final class Async extends SendMode implements SendCallback {
        private final int limit;
        private final Semaphore inFlight;

        Async(DefaultMQProducer producer, SendCounts counts, String topic, int bodyBytes, int limit) {
            super(producer, counts, topic, bodyBytes);
            this.limit = limit;
            this.inFlight = new Semaphore(limit);
        }

        @Override
        void send(String key) throws Exception {
            inFlight.acquire();
            try {
                producer.send(message(), this);
            } catch (Exception failure) {
                inFlight.release();
                throw failure;
            }
        }

        @Override
        public void onSuccess(SendResult result) {
            count(result, 1);
            inFlight.release();
        }

        @Override
        public void onException(Throwable failure) {
            counts.failed(failure);
            inFlight.release();
        }

        @Override
        void finish() throws InterruptedException {
            if (!inFlight.tryAcquire(limit, LAST_ANSWERS_SECONDS, TimeUnit.SECONDS)) {
                counts.failed(new IllegalStateException("answers are missing after " + LAST_ANSWERS_SECONDS + " s"));
            }
        }
    }

    /** With numbers each message of a batch has its own, from 0 on, as property n. */
    private static final class Batch extends SendMode {
        private final int messages;
        private final boolean numbered;

        Batch(DefaultMQProducer producer, SendCounts counts, String topic, int bodyBytes, int messages, boolean numbered) {
            super(producer, counts, topic, bodyBytes);
            this.messages = messages;
            this.numbered = numbered;
        }

        @Override
        void send(String key) throws Exception {
            List<Message> batch = new ArrayList<>(messages);
            for (int i = 0; i < messages; i++) {
                Message message = message();
                if (numbered) {
                    message.putUserProperty("n", Integer.toString(i));
                }
                batch.add(message);
            }
            count(producer.send(batch), messages);
        }
    }
}
