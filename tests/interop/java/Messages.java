import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What message number n looks like, and the line that tells a test what arrived. */
final class Messages {
    private Messages() {
    }

    /** Each hundredth body is long enough for the client to compress it. */
    static Message make(String topic, int n, String[] tags) {
        StringBuilder body = new StringBuilder("body " + n + " é世 ");
        int repeats = n % 100 == 99 ? 1200 : n % 7;
        for (int i = 0; i < repeats; i++) {
            body.append("filler ").append(i);
        }
        String tag = tags[n % tags.length];
        Message message = new Message(topic, tag, "key" + n + " common", body.toString().getBytes(StandardCharsets.UTF_8));
        message.setFlag(n);
        message.putUserProperty("n", Integer.toString(n));
        message.putUserProperty("text", "é世 " + n);
        return message;
    }

    /** No keys, and no property but n: messages whose numbers are as long differ in unique id, tag and n alone. */
    static Message bare(String topic, int n, String[] tags) {
        Message message = new Message(topic, tags[n % tags.length], ("body " + n).getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("n", Integer.toString(n));
        return message;
    }

    /** Tab-separated, in the order of tests/support/java_lines.py. */
    static String line(String word, MessageExt message) {
        CRC32 crc = new CRC32();
        crc.update(message.getBody());
        return String.join("\t", word,
            message.getUserProperty("n"), Integer.toString(message.getQueueId()),
            Long.toString(message.getQueueOffset()), message.getMsgId(), Integer.toString(message.getReconsumeTimes()),
            String.valueOf(message.getTags()), String.valueOf(message.getKeys()), Long.toString(crc.getValue()),
            String.valueOf(message.getUserProperty("text")), Integer.toString(message.getFlag()),
            Long.toString(message.getBornTimestamp()), Long.toString(message.getStoreTimestamp()),
            Long.toString(System.currentTimeMillis()), message.getTopic());
    }

    static void print(String word, List<? extends MessageExt> messages) {
        StringBuilder lines = new StringBuilder();
        for (MessageExt message : messages) {
            lines.append(line(word, message)).append('\n');
        }
        synchronized (System.out) {
            System.out.print(lines);
            System.out.flush();
        }
    }
}
