import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Moves and changes consumer groups by the calls behind Apache's mqadmin. Takes commands from the lines of a file as they are added,
 * words parted by tabs, and prints OFFSET, the command's number, a client or "-", a queue and an offset for each that it is
 * told, or TOLD, the number and a text, then FAILED, the number and why, or DONE and the number.
 */
public final class GroupAdmin {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        DefaultMQAdminExt admin = new DefaultMQAdminExt(30_000);
        options.connect(admin, "admin");
        admin.start();
        System.out.println("STARTED");
        Path file = Paths.get(options.text("file"));
        for (int number = 0; ; Thread.sleep(20)) {
            String text = new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
            List<String> lines = text.substring(0, text.lastIndexOf('\n') + 1).lines().toList();
            for (; number < lines.size(); number++) {
                try {
                    run(admin, number, lines.get(number).split("\t"));
                    System.out.println("DONE\t" + number);
                } catch (Exception failure) {
                    System.out.println("FAILED\t" + number + "\t" + failure.toString().replaceAll("\\s+", " "));
                }
            }
        }
    }

    private static void run(DefaultMQAdminExt admin, int number, String[] words) throws Exception {
        switch (words[0]) {
            case "time": // group, topic, time
                print(number, "-", admin.resetOffsetByTimestamp(words[2], words[1], Long.parseLong(words[3]), true));
                break;
            case "queue": // group, topic, broker, queue, offset
                admin.resetOffsetByQueueId(words[3], words[1], words[2], Integer.parseInt(words[4]), Long.parseLong(words[5]));
                break;
            case "clone": // group, other group, topic
                admin.cloneGroupOffset(words[1], words[2], words[3], false);
                break;
            case "status": // group, topic
                admin.getConsumeStatus(words[2], words[1], "").forEach((client, offsets) -> print(number, client, offsets));
                break;
            case "enable": // group, broker, true or false
                SubscriptionGroupConfig config = admin.examineSubscriptionGroupConfig(words[2], words[1]);
                config.setConsumeEnable(Boolean.parseBoolean(words[3]));
                admin.createAndUpdateSubscriptionGroupConfig(words[2], config);
                break;
            case "readable": // group, broker, topic, true or false
                Boolean readable = Boolean.valueOf(words[4]);
                tell(number, admin.updateAndGetGroupReadForbidden(words[2], words[1], words[3], readable).getReadable());
                break;
            case "direct": // group, client, topic, message id
                tell(number, admin.consumeMessageDirectly(words[1], words[2], words[3], words[4]).getConsumeResult());
                break;
            case "running": // group, client
                admin.getConsumerRunningInfo(words[1], words[2], false).getSubscriptionSet().forEach(
                    subscription -> tell(number, subscription.getTopic() + " " + subscription.getSubString()));
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static void tell(int number, Object text) {
        System.out.println("TOLD\t" + number + "\t" + text);
    }

    private static void print(int number, String client, Map<MessageQueue, Long> offsets) {
        new TreeMap<>(offsets == null ? Collections.emptyMap() : offsets).forEach((queue, offset) ->
            System.out.println("OFFSET\t" + number + "\t" + client + "\t" + queue.getQueueId() + "\t" + offset));
    }
}
