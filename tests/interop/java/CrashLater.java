import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * What CrashLoad sends besides, to the topic `later`: by one thread messages that are delayed, by turns by delay level 1, by
 * level 2 and by TIMER_DELAY_MS, and by another messages in transactions, by turns committed, rolled back, and committed when
 * the broker asks for them. Each thread sends its numbers 0, 1, 2 ... one at a time, each as often as it takes until SEND_OK;
 * the client tries each once. Prints PUT, kind, number, attempt; MISS, kind, number, attempt, why; TOOK, queue, offset, kind,
 * number, attempt for what is delivered; BAD for a body that nobody sent.
 */
final class CrashLater {
    private static final String[] DELAYS = {"level1", "level2", "timer"};
    private static final String[] OUTCOMES = {"commit", "rollback", "unknown"};
    private static final int RETRY_PAUSE_MILLIS = 20;
    private static final int PAUSE_MILLIS = 15;

    private final Options options;
    private final String topic;
    private final Path stopFile;

    CrashLater(Options options) {
        this.options = options;
        this.topic = options.text("later");
        this.stopFile = Path.of(options.text("stopFile"));
    }

    private interface Send {
        SendStatus send(Message message) throws Exception;
    }

    /** Starts the consumer and the producers; the threads are still to be started. */
    List<Thread> start() throws Exception {
        DefaultMQPushConsumer consumer = CrashLoad.consumer(options, topic, "later");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            took(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer delayed = new DefaultMQProducer("PG_delayed_" + topic);
        CrashLoad.connect(delayed, options, "delayed");
        delayed.start();
        TransactionMQProducer transactions = new TransactionMQProducer("PG_" + topic);
        CrashLoad.connect(transactions, options, "transactions");
        transactions.setHeartbeatBrokerInterval(500);
        transactions.setTransactionListener(new Outcomes());
        transactions.start();
        return List.of(
            new Thread(() -> produce(DELAYS, message -> delayed.send(message).getSendStatus()), "delayed"),
            new Thread(() -> produce(OUTCOMES, message ->
                transactions.sendMessageInTransaction(message, null).getSendStatus()), "transactions"));
    }

    private void produce(String[] kinds, Send send) {
        for (int n = 0; !Files.exists(stopFile); n++) {
            sendUntilAcknowledged(kinds[n % kinds.length], n, send);
        }
    }

    private void sendUntilAcknowledged(String kind, int n, Send send) {
        for (int attempt = 0; ; attempt++) {
            String why;
            try {
                Thread.sleep(attempt > 0 ? RETRY_PAUSE_MILLIS : PAUSE_MILLIS);
                why = send.send(make(kind, n, attempt)).name();
                if (why.equals("SEND_OK")) {
                    CrashLoad.print("PUT", kind, n, attempt);
                    return;
                }
            } catch (Exception failure) {
                why = CrashLoad.why(failure);
            }
            CrashLoad.print("MISS", kind, n, attempt, why);
        }
    }

    private Message make(String kind, int n, int attempt) {
        int delay = delay(kind, n);
        Message message = new Message(topic, kind, kind + "-" + n, body(kind, n, attempt, delay));
        if (kind.equals("timer")) {
            message.setDelayTimeMs(delay);
        } else if (kind.startsWith("level")) {
            message.setDelayTimeLevel(Integer.parseInt(kind.substring("level".length())));
        }
        return message;
    }

    /** In milliseconds; 0 for what is not delayed. */
    private static int delay(String kind, int n) {
        switch (kind) {
            case "level1":
                return 1000;
            case "level2":
                return 5000;
            case "timer":
                return 300 + n * 37 % 3000;
            default:
                return 0;
        }
    }

    private static byte[] body(String kind, int n, int attempt, int delay) {
        String text = kind + " " + n + " " + attempt + " " + delay + " ";
        return (text + "y".repeat(n * 53 % 700)).getBytes(StandardCharsets.US_ASCII);
    }

    private static void took(List<MessageExt> messages) {
        for (MessageExt message : messages) {
            String text = new String(message.getBody(), StandardCharsets.US_ASCII);
            String[] parts = text.split(" ", 5);
            String kind = parts[0];
            int n = Integer.parseInt(parts[1]);
            int attempt = Integer.parseInt(parts[2]);
            boolean sound = text.equals(new String(body(kind, n, attempt, delay(kind, n)), StandardCharsets.US_ASCII));
            CrashLoad.print(sound ? "TOOK" : "BAD", message.getQueueId(), message.getQueueOffset(), kind, n, attempt);
        }
    }

    private static final class Outcomes implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object none) {
            switch (message.getTags()) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return message.getTags().equals("rollback")
                ? LocalTransactionState.ROLLBACK_MESSAGE
                : LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
