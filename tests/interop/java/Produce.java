import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;

/**
 * Sends by a plan of steps mode:count:threads, joined by commas; mode is sync, async, oneway, batch or selector (which
 * sends number n to queue n modulo the number of queues). Numbers run on from step to step. Prints SENT, number, unique
 * id, queue, offset and status for each result, and DONE at the end. A batch has up to batchSize messages; with bare they
 * have a tag and a number only.
 */
public final class Produce {
    private static DefaultMQProducer producer;
    private static String topic;
    private static String[] tags;
    private static int delayLevel;
    private static int pauseMillis;
    private static int batchSize;
    private static boolean bare;
    private static final Semaphore WINDOW = new Semaphore(200);
    private static final AtomicInteger FAILURES = new AtomicInteger();

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        topic = options.text("topic");
        tags = options.text("tags", "A,B,C").split(",");
        delayLevel = options.number("delayLevel", 0);
        pauseMillis = options.number("pauseMillis", 0);
        batchSize = options.number("batchSize", 32);
        bare = "true".equals(options.text("bare", "false"));
        producer = new DefaultMQProducer(options.text("group", "PG_Produce"));
        options.connect(producer, "produce");
        producer.setSendMsgTimeout(30_000);
        producer.start();
        int first = options.number("first", 0);
        for (String step : options.text("plan").split(",")) {
            String[] parts = step.split(":");
            int count = Integer.parseInt(parts[1]);
            run(parts[0], first, count, parts.length > 2 ? Integer.parseInt(parts[2]) : 1);
            first += count;
        }
        producer.shutdown();
        System.out.println(FAILURES.get() == 0 ? "DONE" : "FAILED");
        System.exit(FAILURES.get() == 0 ? 0 : 1);
    }

    private static void run(String mode, int first, int count, int threads) throws InterruptedException {
        List<Thread> workers = new ArrayList<>();
        for (int worker = 0; worker < threads; worker++) {
            int mine = worker;
            Thread thread = new Thread(() -> {
                try {
                    send(mode, first, count, mine, threads);
                } catch (Exception failure) {
                    failed(failure);
                }
            });
            workers.add(thread);
            thread.start();
        }
        for (Thread worker : workers) {
            worker.join();
        }
    }

    private static void failed(Throwable failure) {
        FAILURES.incrementAndGet();
        failure.printStackTrace();
    }

    private static void send(String mode, int first, int count, int worker, int threads) throws Exception {
        CountDownLatch latch = new CountDownLatch("async".equals(mode) ? (count - worker + threads - 1) / threads : 0);
        List<Message> batch = new ArrayList<>();
        for (int n = first + worker; n < first + count; n += threads) {
            Message message = bare ? Messages.bare(topic, n, tags) : Messages.make(topic, n, tags);
            if (delayLevel > 0) {
                message.setDelayTimeLevel(delayLevel);
            }
            if (pauseMillis > 0) {
                Thread.sleep(pauseMillis);
            }
            switch (mode) {
                case "sync":
                    sent(n, producer.send(message));
                    break;
                case "oneway":
                    producer.sendOneway(message);
                    break;
                case "selector":
                    sent(n, producer.send(message, (queues, each, key) -> queues.get((Integer) key % queues.size()), n));
                    break;
                case "async":
                    sendAsync(n, message, latch);
                    break;
                case "batch":
                    batch.add(message);
                    if (batch.size() == batchSize || n + threads >= first + count) {
                        sentBatch(batch, producer.send(batch));
                        batch = new ArrayList<>();
                    }
                    break;
                default:
                    throw new IllegalArgumentException("mode " + mode);
            }
        }
        latch.await();
    }

    private static void sendAsync(int n, Message message, CountDownLatch latch) throws Exception {
        WINDOW.acquire();
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                sent(n, result);
                WINDOW.release();
                latch.countDown();
            }

            @Override
            public void onException(Throwable failure) {
                failed(failure);
                WINDOW.release();
                latch.countDown();
            }
        });
    }

    private static void sentBatch(List<Message> batch, SendResult result) {
        String[] ids = result.getMsgId().split(",");
        if (ids.length < batch.size()) { // stored as one record, whose id is that of the batch
            System.out.println("INNER\t" + batch.size() + "\t" + result.getMsgId());
            ids = batch.stream().map(MessageClientIDSetter::getUniqID).toArray(String[]::new);
        }
        for (int i = 0; i < ids.length; i++) {
            report(Integer.parseInt(batch.get(i).getUserProperty("n")), ids[i], result, result.getQueueOffset() + i);
        }
    }

    private static void sent(int n, SendResult result) {
        report(n, result.getMsgId(), result, result.getQueueOffset());
    }

    private static void report(int n, String id, SendResult result, long offset) {
        System.out.println(String.join("\t", "SENT", Integer.toString(n), id,
            Integer.toString(result.getMessageQueue().getQueueId()), Long.toString(offset),
            result.getSendStatus().name()));
    }
}
