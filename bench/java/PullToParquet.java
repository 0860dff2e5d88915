import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.parquet.conf.PlainParquetConfiguration;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroupFactory;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.example.ExampleParquetWriter;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.LocalOutputFile;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Pulls a topic into one Parquet file, a thread a queue: {@code PullToParquet NAMESRV TOPIC}. Prints one line of JSON
 * with the figures of the second of two runs, because the JIT compiler works on the first.
 */
public final class PullToParquet {
    private static final int BATCH = 32; // the most that a broker returns by default
    private static final MessageType SCHEMA = MessageTypeParser.parseMessageType(
            "message pulled { required binary topic (STRING); required int32 queue_id; required int64 queue_offset;"
                    + " required int64 store_timestamp; required binary body; }");
    private static final SimpleGroupFactory ROWS = new SimpleGroupFactory(SCHEMA);

    private PullToParquet() {}

    public static void main(String[] args) {
        int status = 0;
        try {
            System.out.println(measure(args[0], args[1]).toJson());
        } catch (Exception failure) {
            failure.printStackTrace();
            status = 1;
        }
        // The client keeps threads that would hold the JVM.
        System.exit(status);
    }

    private static Outcome measure(String namesrv, String topic) throws Exception {
        DefaultMQPullConsumer consumer = Clients.pullConsumer(namesrv, "bench_pull");
        consumer.start();
        Path file = Files.createTempFile("rocketbroker-bench-", ".parquet");
        try {
            pull(consumer, topic, file);
            double cpu = cpuSeconds();
            long begun = System.nanoTime();
            long messages = pull(consumer, topic, file);
            double wall = (System.nanoTime() - begun) / 1e9;
            cpu = cpuSeconds() - cpu;
            return new Outcome().name("pull_java").count("messages", messages).figure("wall", wall).figure("cpu", cpu);
        } finally {
            Files.delete(file);
            consumer.shutdown();
        }
    }

    private static double cpuSeconds() {
        return ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class).getProcessCpuTime() / 1e9;
    }

    private static long pull(DefaultMQPullConsumer consumer, String topic, Path path) throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        try (ParquetWriter<Group> writer = ExampleParquetWriter.builder(new LocalOutputFile(path))
                .withType(SCHEMA)
                .withWriteMode(ParquetFileWriter.Mode.OVERWRITE)
                .withConf(new PlainParquetConfiguration())
                .withCompressionCodec(CompressionCodecName.SNAPPY)
                .build()) {
            List<Callable<Long>> work = new ArrayList<>();
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                work.add(() -> pullQueue(consumer, queue, writer));
            }
            long messages = 0;
            for (Future<Long> done : threads.invokeAll(work)) {
                messages += done.get();
            }
            return messages;
        } finally {
            threads.shutdown();
        }
    }

    private static long pullQueue(DefaultMQPullConsumer consumer, MessageQueue queue, ParquetWriter<Group> writer)
            throws Exception {
        long offset = 0;
        long end = consumer.maxOffset(queue);
        long messages = 0;
        while (offset < end) {
            PullResult found = consumer.pull(queue, "*", offset, BATCH);
            List<MessageExt> some = found.getMsgFoundList();
            if (some != null) {
                write(writer, some);
                messages += some.size();
            }
            offset = found.getNextBeginOffset();
        }
        return messages;
    }

    private static void write(ParquetWriter<Group> writer, List<MessageExt> messages) throws IOException {
        synchronized (writer) {
            for (MessageExt message : messages) {
                writer.write(ROWS.newGroup()
                        .append("topic", message.getTopic())
                        .append("queue_id", message.getQueueId())
                        .append("queue_offset", message.getQueueOffset())
                        .append("store_timestamp", message.getStoreTimestamp())
                        .append("body", Binary.fromConstantByteArray(message.getBody())));
            }
        }
    }
}
