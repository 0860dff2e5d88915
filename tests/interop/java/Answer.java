import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Answers questions with "re: " and the question, and prints REPLIED, the question and the id of the reply, or REFUSED,
 * the question and why. "silence" is not answered, which prints HEARD; "late" once the file `gate` is there.
 */
public final class Answer {
    private static DefaultMQProducer producer;
    private static Path gate;

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        gate = Paths.get(options.text("gate"));
        producer = new DefaultMQProducer("PG_Answer");
        options.connect(producer, "answer");
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        options.connect(consumer, "answer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(Answer::answer);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("STARTED");
    }

    private static void answer(MessageExt question) {
        String text = new String(question.getBody(), StandardCharsets.UTF_8);
        try {
            if (text.equals("silence")) {
                System.out.println("HEARD\t" + text);
                return;
            }
            while (text.equals("late") && !Files.exists(gate)) {
                Thread.sleep(20);
            }
            Message reply = MessageUtil.createReplyMessage(question, ("re: " + text).getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(reply, 10_000);
            System.out.println("REPLIED\t" + text + "\t" + result.getOffsetMsgId());
        } catch (Exception failure) {
            Throwable why = failure.getCause() == null ? failure : failure.getCause();
            System.out.println("REFUSED\t" + text + "\t" + why.toString().replaceAll("\\s+", " "));
        }
    }
}
