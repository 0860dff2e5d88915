import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;

/**
 * Starts a push consumer for each of the expressions, one a line; prints ACCEPTED and its number, or REFUSED, its number,
 * the code and the text. The first one is tried until it is accepted, each time with a new group.
 */
public final class Filters {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        String[] expressions = options.text("expressions").split("\n");
        int attempt = 0;
        for (int number = 0; number < expressions.length; number++) {
            boolean accepted = false;
            while (!accepted) {
                accepted = start(options, expressions[number], number, ++attempt);
                if (number > 0) {
                    break;
                }
                Thread.sleep(200);
            }
        }
        System.out.println("DONE");
        System.exit(0);
    }

    private static boolean start(Options options, String expression, int number, int attempt) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group") + attempt);
        options.connect(consumer, "filters" + attempt);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        try {
            consumer.subscribe(options.text("topic"), MessageSelector.bySql(expression));
            consumer.start();
        } catch (MQClientException refused) {
            System.out.println(String.join("\t", "REFUSED", Integer.toString(number),
                Integer.toString(refused.getResponseCode()), refused.getErrorMessage()));
            return false;
        }
        System.out.println("ACCEPTED\t" + number);
        consumer.shutdown();
        return true;
    }
}
