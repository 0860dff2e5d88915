import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** Clients of the default settings but for what would make two runs differ: instance names, VIP channel, compression. */
final class Clients {
    private Clients() {}

    static DefaultMQProducer producer(String namesrv) {
        DefaultMQProducer producer = new DefaultMQProducer("bench_producer");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("producer" + System.nanoTime());
        producer.setVipChannelEnabled(false);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        return producer;
    }

    static DefaultMQPullConsumer pullConsumer(String namesrv, String group) {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("consumer" + System.nanoTime());
        consumer.setVipChannelEnabled(false);
        return consumer;
    }

    static DefaultMQPushConsumer consumer(String namesrv, String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("consumer" + System.nanoTime());
        consumer.setVipChannelEnabled(false);
        return consumer;
    }
}
