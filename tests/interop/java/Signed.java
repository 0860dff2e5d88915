import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Signs as a user, sends count messages and consumes them. Prints SENT or REFUSED with the reason for each message, and
 * GOT with the body of each that arrives; with consume=false it ends after the sends.
 */
public final class Signed {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        RPCHook hook = new AclClientRPCHook(new SessionCredentials(options.text("user"), options.text("secret")));
        String topic = options.text("topic");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            options.text("group", "CG_Signed"), hook, new AllocateMessageQueueAveragely());
        DefaultMQProducer producer = new DefaultMQProducer("PG_Signed", hook);
        producer.setRetryTimesWhenSendFailed(0);
        options.connect(producer, "signed-producer");
        producer.start();
        for (int number = 0; number < options.number("count", 3); number++) {
            try {
                producer.send(new Message(topic, ("body-" + number).getBytes()), 30_000);
                System.out.println("SENT\t" + number);
            } catch (Exception refused) {
                Throwable reason = refused.getCause() == null ? refused : refused.getCause();
                System.out.println("REFUSED\t" + String.valueOf(reason.getMessage()).replace('\n', ' '));
            }
        }
        if ("true".equals(options.text("consume", "true"))) {
            options.connect(consumer, "signed-consumer");
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> System.out.println("GOT\t" + new String(message.getBody())));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            System.out.println("CONSUMING");
            Thread.sleep(Long.MAX_VALUE);
        }
        producer.shutdown();
        System.out.println("DONE");
        System.exit(0);
    }
}
