import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/** Looks for messages by key (KEY lines; each key is of one message) and by unique id (ID lines). */
public final class Lookup {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        String topic = options.text("topic");
        DefaultMQProducer producer = new DefaultMQProducer("PG_Lookup");
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.start();
        long now = System.currentTimeMillis();
        List<MessageExt> found = new ArrayList<>();
        for (String n : options.text("numbers").split(",")) {
            found.addAll(producer.queryMessage(topic, "key" + n, 32, now - 3600000, now + 60000).getMessageList());
        }
        Messages.print("KEY", found);
        found.clear();
        for (String id : options.text("ids").split(",")) {
            found.add(producer.viewMessage(topic, id));
        }
        Messages.print("ID", found);
        producer.shutdown();
        System.out.println("DONE");
        System.exit(0);
    }
}
