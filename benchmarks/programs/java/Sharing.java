// Reads a topic as a member of a share group with Java's client, for benchmarks/sharing.py;
// benchmarks/programs/README.md describes the lines on standard input and output.

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Sharing {
    private static final OperatingSystemMXBean PROCESS =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final Logger LOGGER = Logger.getLogger("org.apache.kafka");
    private static final long LIMIT_NS = 300_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        LOGGER.setLevel(Level.SEVERE);
        System.out.println(
                "kafka-clients " + arguments[0] + ", Java " + System.getProperty("java.version"));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = requests.readLine()) != null) {
            String response;
            try {
                response = share(line.split("\t", -1));
            } catch (Exception error) {
                response = "failed\t" + error.toString().replace('\n', ' ');
            }
            System.out.println(response);
        }
        System.exit(0);
    }

    private static String share(String[] words) {
        int records = Integer.parseInt(words[4]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[1]);
        settings.put("group.id", words[3]);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        long wall = 0;
        long cpu = 0;
        int found = 0;
        long bytesRead = 0;
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(words[2]));
            long limit = System.nanoTime() + LIMIT_NS;
            while (found < records && System.nanoTime() < limit) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofSeconds(1));
                if (found == 0 && polled.count() > 0) {
                    wall = System.nanoTime();
                    cpu = PROCESS.getProcessCpuTime();
                }
                found += polled.count();
                for (var record : polled) {
                    bytesRead += record.value().length;
                }
            }
            consumer.commitSync();
        }
        double wallS = (System.nanoTime() - wall) / 1e9;
        double cpuS = (PROCESS.getProcessCpuTime() - cpu) / 1e9;
        return "shared\t" + found + "\t" + bytesRead + "\t" + cpuS + "\t" + wallS;
    }
}
