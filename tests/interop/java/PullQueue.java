import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultMQPullConsumer reads the messages `from` to before `to` of the one queue `queue`: GOT lines. */
public final class PullQueue {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(options.text("group"));
        options.connect(consumer, "pull");
        consumer.start();
        long to = options.number("to", 0);
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(options.text("topic"))) {
            if (queue.getQueueId() != options.number("queue", 0)) {
                continue;
            }
            long offset = options.number("from", 0);
            while (offset < to) {
                PullResult result = consumer.pull(queue, "*", offset, (int) Math.min(32, to - offset));
                if (result.getPullStatus() != PullStatus.FOUND) {
                    throw new IllegalStateException(result + " at " + offset);
                }
                Messages.print("GOT", result.getMsgFoundList());
                offset = result.getNextBeginOffset();
            }
        }
        consumer.shutdown();
        System.out.println("DONE");
        System.exit(0);
    }
}
