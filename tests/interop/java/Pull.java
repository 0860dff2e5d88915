import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * DefaultMQPullConsumer reads a topic queue by queue: GOT lines, QUEUE with id, min, max and the offset of a time, pulls
 * outside the queue's range, and offsets written and read back. `also` is an expression to read once more by (ALSO
 * lines), `numbers` and `ids` are messages to look for by their key (KEY lines) and unique id (ID lines).
 */
public final class Pull {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        String topic = options.text("topic");
        String expression = options.text("expression", "*");
        String also = options.text("also", "");
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(options.text("group"));
        options.connect(consumer, "pull");
        consumer.setBrokerSuspendMaxTimeMillis(options.number("suspend", 20000));
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(topic));
        queues.sort(Comparator.comparingInt(MessageQueue::getQueueId));
        for (MessageQueue queue : queues) {
            System.out.println(String.join("\t", "QUEUE", "" + queue.getQueueId(), "" + consumer.minOffset(queue),
                "" + consumer.maxOffset(queue), "" + consumer.searchOffset(queue, 0),
                "" + consumer.earliestMsgStoreTime(queue)));
            System.out.println("COMMITTED-BEFORE\t" + queue.getQueueId() + "\t" + consumer.fetchConsumeOffset(queue, true));
            long offset = read(consumer, queue, expression, "GOT");
            if (!also.isEmpty()) {
                read(consumer, queue, also, "ALSO");
            }
            PullResult beyond = consumer.pull(queue, expression, consumer.maxOffset(queue) + 1000, 32);
            System.out.println("BEYOND\t" + queue.getQueueId() + "\t" + beyond.getPullStatus() + "\t"
                + beyond.getNextBeginOffset() + "\t" + beyond.getMinOffset() + "\t" + beyond.getMaxOffset());
            consumer.updateConsumeOffset(queue, offset);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        }
        Thread.sleep(200); // offsets go out oneway
        for (MessageQueue queue : queues) {
            System.out.println("COMMITTED\t" + queue.getQueueId() + "\t" + consumer.fetchConsumeOffset(queue, true));
        }
        long started = System.currentTimeMillis();
        PullResult held = consumer.pullBlockIfNotFound(queues.get(0), expression, consumer.maxOffset(queues.get(0)), 32);
        System.out.println("HELD\t" + held.getPullStatus() + "\t" + (System.currentTimeMillis() - started));
        look(consumer, topic, options);
        consumer.shutdown();
        System.out.println("DONE");
        System.exit(0);
    }

    private static long read(DefaultMQPullConsumer consumer, MessageQueue queue, String expression, String word)
        throws Exception {
        long offset = consumer.minOffset(queue);
        while (true) {
            PullResult result = consumer.pull(queue, expression, offset, 32);
            if (result.getPullStatus() == PullStatus.FOUND) {
                Messages.print(word, result.getMsgFoundList());
            } else if (result.getPullStatus() == PullStatus.NO_NEW_MSG) {
                return offset;
            }
            offset = result.getNextBeginOffset();
        }
    }

    private static void look(DefaultMQPullConsumer consumer, String topic, Options options) throws Exception {
        long now = System.currentTimeMillis();
        for (String n : options.text("numbers", "").split(",")) {
            if (!n.isEmpty()) {
                Messages.print("KEY",
                    consumer.queryMessage(topic, "key" + n, 32, now - 3600000, now + 60000).getMessageList());
            }
        }
        for (String id : options.text("ids", "").split(",")) {
            if (!id.isEmpty()) {
                Messages.print("ID", Collections.singletonList(consumer.viewMessage(topic, id)));
            }
        }
    }
}
