import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends `count` messages by some threads, then one more, and asks for that once by pull, by key, by unique id and by
 * offset id. Prints FOUND, the way, where the message was found and where it was sent to. A request that does not find
 * it ends the program with an error.
 */
public final class FindLast {
    private static final String[] TAGS = {"A"};

    private interface Look {
        MessageExt find() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        String topic = options.text("topic");
        int count = options.number("count", 1000);
        int threads = options.number("threads", 8);
        DefaultMQProducer producer = new DefaultMQProducer("PG_FindLast");
        options.connect(producer, "find");
        producer.setSendMsgTimeout(30_000);
        producer.start();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("CG_FindLast");
        options.connect(consumer, "find");
        consumer.start();
        // Routes and connections are made before the last message is sent.
        SendResult warm = producer.send(Messages.make(topic, count + 1, TAGS));
        consumer.pull(warm.getMessageQueue(), "*", warm.getQueueOffset(), 1);
        Thread[] workers = new Thread[threads];
        for (int worker = 0; worker < threads; worker++) {
            int mine = worker;
            workers[worker] = new Thread(() -> {
                for (int n = mine; n < count; n += threads) {
                    try {
                        producer.send(Messages.make(topic, n, TAGS));
                    } catch (Exception failure) {
                        failure.printStackTrace();
                        System.exit(1);
                    }
                }
            });
            workers[worker].start();
        }
        for (Thread worker : workers) {
            worker.join();
        }
        SendResult last = producer.send(Messages.make(topic, count, TAGS));
        long sent = System.currentTimeMillis();
        MessageQueue queue = last.getMessageQueue();
        find("pull", last, () -> {
            PullResult result = consumer.pull(queue, "*", last.getQueueOffset(), 1);
            return result.getMsgFoundList() == null ? null : result.getMsgFoundList().get(0);
        });
        find("key", last, () -> {
            QueryResult result = producer.queryMessage(topic, "key" + count, 8, sent - 60000, sent + 60000);
            return result.getMessageList().get(0);
        });
        find("unique id", last, () -> producer.viewMessage(topic, last.getMsgId()));
        find("offset id", last, () -> producer.viewMessage(topic, last.getOffsetMsgId()));
        producer.shutdown();
        consumer.shutdown();
        System.out.println("DONE");
        System.exit(0);
    }

    private static void find(String way, SendResult last, Look look) throws Exception {
        MessageExt message = look.find();
        if (message == null) {
            throw new IllegalStateException("the first request by " + way + " did not find the last message");
        }
        String place = message.getQueueId() + ":" + message.getQueueOffset();
        String wanted = last.getMessageQueue().getQueueId() + ":" + last.getQueueOffset();
        System.out.println(String.join("\t", "FOUND", way, place, wanted, message.getUserProperty("n")));
    }
}
