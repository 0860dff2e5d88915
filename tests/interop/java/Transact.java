import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages in transactions, or none and only answers when it is asked; it stays until it is killed.
 * outcomes and checks are lists of commit, rollback and unknown: message n ends its local transaction as outcomes says, by
 * turns, and is answered for as checks says, by how often it was asked (the last stands for all further times). From
 * message number gateFrom on, the local transaction waits for the file `gate`. Prints LOCAL n, HALF n id status state,
 * CHECK n id times topic crc, and SENT at the end.
 */
public final class Transact {
    private static final AtomicInteger NEXT = new AtomicInteger();

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        String topic = options.text("topic");
        String[] outcomes = options.text("outcomes", "commit").split(",");
        String[] checks = options.text("checks", "commit").split(",");
        int gateFrom = options.number("gateFrom", Integer.MAX_VALUE);
        Path gate = Path.of(options.text("gate", "none"));
        TransactionMQProducer producer = new TransactionMQProducer(options.text("group", "PG_Transact"));
        options.connect(producer, "transact");
        producer.setSendMsgTimeout(30_000);
        producer.setHeartbeatBrokerInterval(500);
        producer.setPollNameServerInterval(1000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object number) {
                int n = (Integer) number;
                print("LOCAL", Integer.toString(n));
                while (n >= gateFrom && !Files.exists(gate)) {
                    pause();
                }
                return state(outcomes[n % outcomes.length]);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                int times = Integer.parseInt(message.getUserProperty("TRANSACTION_CHECK_TIMES"));
                CRC32 crc = new CRC32();
                crc.update(message.getBody());
                print("CHECK", message.getUserProperty("n"), message.getTransactionId(), Integer.toString(times),
                    message.getTopic(), Long.toString(crc.getValue()));
                return state(checks[Math.min(times, checks.length) - 1]);
            }
        });
        producer.start();
        // So that it knows the broker, and the broker it, though it may send nothing else.
        producer.send(new Message("Hello", "hello".getBytes(StandardCharsets.UTF_8)));
        print("STARTED");
        int count = options.number("count", 0);
        Thread[] threads = new Thread[options.number("threads", 1)];
        for (int each = 0; each < threads.length; each++) {
            threads[each] = new Thread(() -> {
                for (int n = NEXT.getAndIncrement(); n < count; n = NEXT.getAndIncrement()) {
                    send(producer, topic, n);
                }
            });
            threads[each].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        print("SENT");
    }

    private static void send(TransactionMQProducer producer, String topic, int n) {
        try {
            Message message = Messages.make(topic, n, new String[] {"A", "B", "C"});
            TransactionSendResult result = producer.sendMessageInTransaction(message, n);
            print("HALF", Integer.toString(n), result.getMsgId(), result.getSendStatus().name(),
                result.getLocalTransactionState().name());
        } catch (Exception failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static LocalTransactionState state(String word) {
        switch (word) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            case "unknown":
                return LocalTransactionState.UNKNOW;
            default:
                throw new IllegalArgumentException(word);
        }
    }

    private static void pause() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static void print(String... fields) {
        synchronized (System.out) {
            System.out.println(String.join("\t", fields));
            System.out.flush();
        }
    }
}
