import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group, as an application writes it with Java's client: commits now and then, and when it has to give partitions away.
 * Arguments: the topic, then settings (name=value). It prints what happens, a line each, as group_member.py does, and leaves when its input ends.
 */
public final class GroupMember implements ConsumerRebalanceListener {
    private static final PrintStream OUT = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false);
    private static final long COMMIT_INTERVAL_NS = 150_000_000L;

    private final KafkaConsumer<String, String> consumer;

    private GroupMember(Properties settings) {
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** Tells when it shares out the partitions for all. */
    public static final class Cooperative extends CooperativeStickyAssignor {
        @Override
        public GroupAssignment assign(Cluster metadata, GroupSubscription members) {
            say("leads " + members.groupSubscription().size());
            return super.assign(metadata, members);
        }
    }

    /** The same with eager rebalances. */
    public static final class Sticky extends StickyAssignor {
        @Override
        public GroupAssignment assign(Cluster metadata, GroupSubscription members) {
            say("leads " + members.groupSubscription().size());
            return super.assign(metadata, members);
        }
    }

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        for (int index = 1; index < arguments.length; index++) {
            String[] parts = arguments[index].split("=", 2);
            settings.setProperty(parts[0], parts[1]);
        }
        new GroupMember(settings).run(arguments[0]);
    }

    private void run(String topic) {
        Thread input = new Thread(GroupMember::awaitEnd);
        input.setDaemon(true);
        input.start();
        try (consumer) {
            consumer.subscribe(List.of(topic), this);
            long committed = System.nanoTime();
            while (input.isAlive()) {
                process(consumer.poll(Duration.ofMillis(20)));
                if (System.nanoTime() - committed > COMMIT_INTERVAL_NS) {
                    commit();
                    committed = System.nanoTime();
                }
            }
            while (!commit()) {
                process(consumer.poll(Duration.ofMillis(20)));
            }
        }
        say("left");
    }

    private static void awaitEnd() {
        try {
            while (System.in.read() >= 0) {
                // only its end is of interest
            }
        } catch (IOException error) {
            // as good as its end
        }
    }

    private static void process(ConsumerRecords<String, String> records) {
        for (TopicPartition partition : records.partitions()) {
            StringBuilder line = new StringBuilder("read ").append(partition.partition());
            for (ConsumerRecord<String, String> record : records.records(partition)) {
                line.append(' ').append(record.offset()).append(':').append(record.value());
            }
            say(line.toString());
        }
    }

    /** Whether it was possible: while a group rebalances it is not. */
    private boolean commit() {
        try {
            consumer.commitSync();
            return true;
        } catch (RebalanceInProgressException error) {
            return false;
        } catch (CommitFailedException error) {
            say("refused " + error);
            return false;
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tell("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        tell("revoked", partitions);
        if (!partitions.isEmpty()) {
            try {
                consumer.commitSync();
            } catch (KafkaException error) {
                say("refused " + error);
            }
        }
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        tell("lost", partitions);
    }

    private static void tell(String event, Collection<TopicPartition> partitions) {
        StringBuilder line = new StringBuilder(event);
        for (TopicPartition partition : partitions) {
            line.append(' ').append(partition.partition());
        }
        say(line.toString());
    }

    /** Whoever reads this knows of a record before it can be committed. */
    private static synchronized void say(String line) {
        OUT.write((line + "\n").getBytes(StandardCharsets.UTF_8), 0, line.length() + 1);
        OUT.flush();
    }
}
