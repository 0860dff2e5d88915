import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends timer messages: number n is due stepMillis * n after the first one's delay, which is `firstMillis`; by turns the
 * delay is given in milliseconds, as a time, in seconds, and by the level of five seconds whatever n is. Each
 * `recallEach`-th is recalled at the end. Prints SENT n id status due, RECALLED n id, and REFUSED what code for what a
 * broker must refuse.
 */
public final class Timers {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        String topic = options.text("topic");
        int count = options.number("count", 0);
        int recallEach = options.number("recallEach", Integer.MAX_VALUE);
        DefaultMQProducer producer = new DefaultMQProducer("PG_Timers");
        options.connect(producer, "timers");
        producer.setSendMsgTimeout(30_000);
        producer.start();
        List<String> handles = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            Message message = Messages.make(topic, n, new String[] {"A", "B", "C"});
            long delay = options.number("firstMillis", 5000) + (long) n * options.number("stepMillis", 100);
            long due = System.currentTimeMillis() + delay;
            if (n % 4 == 0) {
                message.setDelayTimeMs(delay);
            } else if (n % 4 == 1) {
                message.setDeliverTimeMs(due);
            } else if (n % 4 == 2) {
                message.setDelayTimeSec(delay / 1000);
                due = due - delay + delay / 1000 * 1000;
            } else {
                message.setDelayTimeLevel(2);
                due = due - delay + 5000;
            }
            SendResult result = producer.send(message);
            handles.add(result.getRecallHandle());
            print("SENT", n, result.getMsgId(), result.getSendStatus().name(), Long.toString(due));
        }
        for (int n = 0; n < count; n += recallEach) {
            print("RECALLED", n, producer.recallMessage(topic, handles.get(n)));
        }
        refused("far", () -> {
            Message message = Messages.make(topic, 0, new String[] {"A"});
            message.setDelayTimeSec(3 * 86400 + 60);
            producer.send(message);
        });
        refused("topic", () -> producer.recallMessage("Hello", handles.get(1)));
        String passed = "v1 " + topic + " broker-a 1000 KEY";
        String handle = Base64.getUrlEncoder().encodeToString(passed.getBytes(StandardCharsets.UTF_8));
        refused("passed", () -> producer.recallMessage(topic, handle));
        System.out.println("DONE");
        producer.shutdown();
        System.exit(0);
    }

    private interface Call {
        void run() throws Exception;
    }

    private static void refused(String what, Call call) throws Exception {
        try {
            call.run();
            System.out.println("TAKEN\t" + what);
        } catch (MQBrokerException refusal) {
            System.out.println("REFUSED\t" + what + "\t" + refusal.getResponseCode());
        } catch (Exception failure) {
            System.out.println("REFUSED\t" + what + "\t" + failure.getMessage().replace('\n', ' '));
        }
    }

    private static void print(String word, int n, String... fields) {
        System.out.println(word + "\t" + n + "\t" + String.join("\t", fields));
    }
}
