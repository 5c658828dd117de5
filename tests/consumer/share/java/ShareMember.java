// A member of a share group by Java's client, with the arguments and the ledger of share_member.py.

import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class ShareMember {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("share.acquire.mode", "record_limit");
        settings.put("max.poll.records", arguments[4]);
        settings.put("fetch.max.wait.ms", "50");
        Random random = new Random();
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (FileOutputStream ledger = new FileOutputStream(arguments[3], true);
                KafkaShareConsumer<byte[], byte[]> consumer =
                        new KafkaShareConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(arguments[1]));
            while (true) {
                List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
                consumer.poll(Duration.ofSeconds(1)).forEach(records::add);
                if (records.isEmpty()) {
                    continue;
                }
                write(ledger, "got", records);
                List<ConsumerRecord<byte[], byte[]>> accepted = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    boolean release = random.nextInt(10) == 0;
                    consumer.acknowledge(
                            record, release ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    if (!release) {
                        accepted.add(record);
                    }
                }
                if (consumer.commitSync().values().stream().allMatch(e -> e.isEmpty())) {
                    write(ledger, "sure", accepted);
                }
            }
        }
    }

    private static void write(
            FileOutputStream ledger, String kind, List<ConsumerRecord<byte[], byte[]>> records)
            throws Exception {
        long now = System.nanoTime();
        StringBuilder lines = new StringBuilder();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            lines.append(String.format("%s %d %d %d %d java%n", kind, record.partition(),
                    record.offset(), record.deliveryCount().orElse((short) -1), now));
        }
        ledger.write(lines.toString().getBytes(StandardCharsets.UTF_8));
    }
}
