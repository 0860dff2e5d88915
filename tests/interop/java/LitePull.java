import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * DefaultLitePullConsumer. mode=subscribe polls `count` messages and commits them; mode=assign takes all queues by hand,
 * seeks each to `seek`, polls `count` messages, commits, and reads the offset of each queue back.
 */
public final class LitePull {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        String topic = options.text("topic");
        int count = options.number("count", 100);
        boolean assign = "assign".equals(options.text("mode", "subscribe"));
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.text("group"));
        options.connect(consumer, "lite");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        if (!assign) {
            consumer.subscribe(topic, options.text("expression", "*"));
        }
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(topic));
        queues.sort(Comparator.comparingInt(MessageQueue::getQueueId));
        if (assign) {
            for (MessageQueue queue : queues) {
                System.out.println("TIME\t" + queue.getQueueId() + "\t"
                    + consumer.offsetForTimestamp(queue, System.currentTimeMillis()));
            }
            consumer.assign(queues);
            // A pull under way when a seek comes may, in client 5.5.0, bring the old messages after it, with any broker.
            consumer.pause(queues);
            Thread.sleep(1500);
            for (MessageQueue queue : queues) {
                consumer.seek(queue, options.number("seek", 0));
            }
            consumer.resume(queues);
        }
        int taken = 0;
        long deadline = System.currentTimeMillis() + 60000;
        while (taken < count && System.currentTimeMillis() < deadline) {
            List<MessageExt> messages = consumer.poll(500);
            Messages.print("GOT", messages);
            taken += messages.size();
        }
        List<MessageExt> beyond = consumer.poll(500);
        Messages.print("GOT", beyond.isEmpty() ? Collections.emptyList() : beyond);
        consumer.commitSync();
        Thread.sleep(500); // offsets go out oneway
        for (MessageQueue queue : queues) {
            System.out.println("COMMITTED\t" + queue.getQueueId() + "\t" + consumer.committed(queue));
        }
        consumer.shutdown();
        System.out.println("DONE");
        System.exit(0);
    }
}
