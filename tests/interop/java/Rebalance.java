import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Allocates the queues of each line of a file ({@code in=}) and writes the indexes for each client ({@code out=}). */
public final class Rebalance {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        List<String> answers = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(options.text("in")), StandardCharsets.UTF_8)) {
            answers.add(answer(line.split("\t", -1)));
        }
        Files.write(Path.of(options.text("out")), answers, StandardCharsets.UTF_8);
    }

    private static String answer(String[] fields) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String text : fields[3].split(",")) {
            int mark = text.lastIndexOf(':');
            queues.add(new MessageQueue(fields[2], text.substring(0, mark), Integer.parseInt(text.substring(mark + 1))));
        }
        List<String> clients = Arrays.asList(fields[4].split(","));
        AllocateMessageQueueStrategy strategy = strategy(fields[0], fields[1], queues);
        List<String> shares = new ArrayList<>();
        for (String client : clients) {
            shares.add(strategy.allocate("CG", client, queues, clients).stream()
                .map(queue -> String.valueOf(queues.indexOf(queue))).collect(Collectors.joining(",")));
        }
        return String.join("|", shares);
    }

    private static AllocateMessageQueueStrategy strategy(String name, String option, List<MessageQueue> queues) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONFIG":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(Arrays.stream(option.split(",")).filter(index -> !index.isEmpty())
                    .map(index -> queues.get(Integer.parseInt(index))).collect(Collectors.toList()));
                return config;
            case "CONSISTENT_HASH":
                return option.isEmpty() ? new AllocateMessageQueueConsistentHash()
                    : new AllocateMessageQueueConsistentHash(Integer.parseInt(option));
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
                room.setConsumeridcs(new HashSet<>(Arrays.asList(option.split(","))));
                return room;
            default:
                return new AllocateMachineRoomNearby(strategy(option, "", queues), new Rooms());
        }
    }

    /** Takes what is before the first {@code @} for the room. */
    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return room(queue.getBrokerName());
        }

        @Override
        public String consumerDeployIn(String client) {
            return room(client);
        }

        private static String room(String name) {
            int mark = name.indexOf('@');
            return mark < 0 ? name : name.substring(0, mark);
        }
    }
}
