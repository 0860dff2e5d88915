import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.common.message.Message;

/**
 * Asks `count` questions one after the other and as many at a time, each of which prints ANSWERED with how it was asked,
 * the question and the answer. Then it asks one question in vain, which prints TIMEOUT and how long it waited, and
 * last, with `leave`, one that it does not wait for: LEFT. The client may call back twice for one question, if its reply
 * is sent twice.
 */
public final class Ask {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        String topic = options.text("topic");
        int count = options.number("count", 10);
        DefaultMQProducer producer = new DefaultMQProducer(options.text("group", "PG_Ask"));
        options.connect(producer, "ask");
        producer.start();
        for (int n = 0; n < count; n++) {
            Message answer = producer.request(question(topic, "sync " + n), 30_000);
            System.out.println("ANSWERED\tsync\tsync " + n + "\t" + text(answer));
        }
        CountDownLatch open = new CountDownLatch(count);
        Set<String> answered = ConcurrentHashMap.newKeySet();
        for (int n = 0; n < count; n++) {
            String asked = "async " + n;
            producer.request(question(topic, asked), new RequestCallback() {
                @Override
                public void onSuccess(Message answer) {
                    System.out.println("ANSWERED\tasync\t" + asked + "\t" + text(answer));
                    if (answered.add(asked)) {
                        open.countDown();
                    }
                }

                @Override
                public void onException(Throwable failure) {
                    failure.printStackTrace();
                    open.countDown();
                }
            }, 30_000);
        }
        open.await();
        long start = System.nanoTime();
        try {
            producer.request(question(topic, "silence"), 2_000);
        } catch (RequestTimeoutException late) {
            System.out.println("TIMEOUT\t" + (System.nanoTime() - start) / 1_000_000);
        }
        producer.request(question(topic, "late"), new RequestCallback() {
            @Override
            public void onSuccess(Message answer) {
                System.out.println("ANSWERED\tlate\tlate\t" + text(answer));
            }

            @Override
            public void onException(Throwable failure) {
                failure.printStackTrace();
            }
        }, 60_000);
        System.out.println("LEFT");
        Thread.sleep(Long.MAX_VALUE);
    }

    private static Message question(String topic, String text) {
        return new Message(topic, "A", text.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
