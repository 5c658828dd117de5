// Sends and reads records with Kafka's Java client, for benchmarks/adapters/foreign.py;
// benchmarks/programs/README.md describes the lines on standard input and output.

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Client {
    private static final OperatingSystemMXBean PROCESS =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final Logger LOGGER = Logger.getLogger("org.apache.kafka");
    private static final Map<String, byte[][]> FILES_READ = new HashMap<>();

    private static final Duration POLL = Duration.ofSeconds(1);
    private static final long LIMIT_NS = 300_000_000_000L;

    private static KafkaProducer<byte[], byte[]> producer;
    private static KafkaConsumer<byte[], byte[]> consumer;

    public static void main(String[] arguments) throws Exception {
        LOGGER.setLevel(Level.WARNING);
        System.out.println(
                "kafka-clients " + arguments[0] + ", Java " + System.getProperty("java.version"));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = requests.readLine()) != null) {
            String response;
            try {
                response = handle(line.split("\t", -1));
            } catch (Exception error) {
                response = "failed\t" + error.toString().replace('\n', ' ');
            }
            System.out.println(response);
        }
    }

    private static String handle(String[] words) throws Exception {
        switch (words[0]) {
            case "start":
                producer = new KafkaProducer<>(properties(words));
                return "started";
            case "send":
                return send(
                        words[1],
                        Integer.parseInt(words[2]),
                        lines(words[3]),
                        lines(words[4]),
                        Integer.parseInt(words[5]));
            case "stop":
                producer.close();
                return "stopped";
            case "begin":
                Properties transactional = properties(words);
                transactional.put("transactional.id", words[7]);
                producer = new KafkaProducer<>(transactional);
                producer.initTransactions();
                return "begun";
            case "transact":
                return transact(
                        words[1],
                        Integer.parseInt(words[2]),
                        Integer.parseInt(words[3]),
                        lines(words[4]));
            case "open":
                consumer = consumer(words[1]);
                return "opened";
            case "read":
                return read(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            case "close":
                consumer.close();
                return "closed";
            default:
                throw new IllegalArgumentException("unknown request " + words[0]);
        }
    }

    private static Properties properties(String[] words) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", words[1]);
        properties.put("key.serializer", ByteArraySerializer.class);
        properties.put("value.serializer", ByteArraySerializer.class);
        if (words.length == 2) { // with the client's own defaults
            return properties;
        }
        properties.put("acks", words[2]);
        properties.put("enable.idempotence", words[2].equals("all"));
        properties.put("linger.ms", (int) Double.parseDouble(words[3]));
        properties.put("batch.size", words[4]);
        properties.put("compression.type", words[5]);
        properties.put("buffer.memory", words[6]);
        properties.put("max.in.flight.requests.per.connection", 5);
        return properties;
    }

    private static String send(
            String topic, int records, byte[][] values, byte[][] keys, int headerCount) {
        List<Header> headers = new ArrayList<>();
        for (int number = 0; number < headerCount; number++) {
            headers.add(
                    new RecordHeader(
                            "header-" + number,
                            ("value of " + number).getBytes(StandardCharsets.UTF_8)));
        }
        List<Header> headersOrNone = headers.isEmpty() ? null : headers;
        AtomicLong delivered = new AtomicLong();
        AtomicReference<Exception> failure = new AtomicReference<>();
        Callback report = (metadata, error) -> {
            if (error == null) {
                delivered.incrementAndGet();
            } else {
                failure.set(error);
            }
        };
        System.gc(); // so that earlier garbage is not measured
        long wall = System.nanoTime();
        long cpu = PROCESS.getProcessCpuTime(); // of all threads
        int key = 0;
        int value = 0;
        for (int number = 0; number < records; number++) {
            byte[] keyBytes = null;
            if (keys.length > 0) {
                keyBytes = keys[key];
                if (++key == keys.length) {
                    key = 0;
                }
            }
            producer.send(
                    new ProducerRecord<>(topic, null, keyBytes, values[value], headersOrNone),
                    report);
            if (++value == values.length) {
                value = 0;
            }
        }
        producer.flush();
        double cpuS = (PROCESS.getProcessCpuTime() - cpu) / 1e9;
        double wallS = (System.nanoTime() - wall) / 1e9;
        if (delivered.get() != records) {
            throw new IllegalStateException(
                    delivered + " of " + records + " records were delivered; last error: " + failure);
        }
        return "sent\t" + records + "\t" + cpuS + "\t" + wallS;
    }

    /** Sends the records, and commits after each {@code recordsEach}. */
    private static String transact(String topic, int records, int recordsEach, byte[][] values) {
        AtomicLong delivered = new AtomicLong();
        Callback report = (metadata, error) -> {
            if (error == null) {
                delivered.incrementAndGet();
            }
        };
        System.gc(); // so that earlier garbage is not measured
        long wall = System.nanoTime();
        long cpu = PROCESS.getProcessCpuTime(); // of all threads
        for (int sent = 0; sent < records; ) {
            producer.beginTransaction();
            for (int end = sent + recordsEach; sent < end; sent++) {
                producer.send(new ProducerRecord<>(topic, values[sent % values.length]), report);
            }
            producer.commitTransaction();
        }
        double cpuS = (PROCESS.getProcessCpuTime() - cpu) / 1e9;
        double wallS = (System.nanoTime() - wall) / 1e9;
        if (delivered.get() != records) {
            throw new IllegalStateException(delivered + " of " + records + " records were delivered");
        }
        return "transacted\t" + records + "\t" + cpuS + "\t" + wallS;
    }

    /** Returns a connected consumer with default settings. */
    private static KafkaConsumer<byte[], byte[]> consumer(String servers) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("enable.auto.commit", false);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        KafkaConsumer<byte[], byte[]> opened = new KafkaConsumer<>(properties, bytes, bytes);
        opened.listTopics(); // waits for the connection
        return opened;
    }

    private static String read(String topic, int partitions, int records) {
        List<TopicPartition> assigned = new ArrayList<>();
        for (int number = 0; number < partitions; number++) {
            assigned.add(new TopicPartition(topic, number));
        }
        System.gc(); // so that earlier garbage is not measured
        long limit = System.nanoTime() + LIMIT_NS;
        long wall = System.nanoTime();
        long cpu = PROCESS.getProcessCpuTime(); // of all threads
        consumer.assign(assigned);
        consumer.seekToBeginning(assigned);
        int found = 0;
        long bytesRead = 0;
        while (found < records && System.nanoTime() < limit) {
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(POLL);
            for (ConsumerRecord<byte[], byte[]> record : polled) {
                bytesRead += record.value().length;
            }
            found += polled.count();
        }
        double cpuS = (PROCESS.getProcessCpuTime() - cpu) / 1e9;
        double wallS = (System.nanoTime() - wall) / 1e9;
        consumer.assign(List.of());
        return "read\t" + found + "\t" + bytesRead + "\t" + cpuS + "\t" + wallS;
    }

    /** Returns the lines of a file, read once; none if there is no path. */
    private static byte[][] lines(String path) throws Exception {
        if (path.isEmpty()) {
            return new byte[0][];
        }
        byte[][] found = FILES_READ.get(path);
        if (found == null) {
            List<String> lines = Files.readAllLines(Path.of(path), StandardCharsets.ISO_8859_1);
            found = lines.stream()
                    .map(line -> line.getBytes(StandardCharsets.ISO_8859_1))
                    .toArray(byte[][]::new);
            FILES_READ.put(path, found);
        }
        return found;
    }
}
