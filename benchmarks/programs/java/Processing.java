// Processes records with Confluent's parallel-consumer in the order of keys, for
// benchmarks/processing.py; benchmarks/programs/README.md describes the lines on standard input and
// output.

import com.sun.management.OperatingSystemMXBean;
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Processing {
    private static final OperatingSystemMXBean PROCESS =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final Logger[] LOGGERS = {
        Logger.getLogger("org.apache.kafka"), Logger.getLogger("io.confluent")
    };
    private static final int LIMIT_S = 300;

    public static void main(String[] arguments) throws Exception {
        for (Logger logger : LOGGERS) {
            logger.setLevel(Level.SEVERE);
        }
        System.out.println(
                "parallel-consumer " + arguments[0] + ", Java " + System.getProperty("java.version"));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = requests.readLine()) != null) {
            String response;
            try {
                response = process(line.split("\t", -1));
            } catch (Exception error) {
                response = "failed\t" + error.toString().replace('\n', ' ');
            }
            System.out.println(response);
        }
        System.exit(0);
    }

    private static String process(String[] words) throws Exception {
        int records = Integer.parseInt(words[5]);
        long sleepMs = Long.parseLong(words[6]);
        AtomicInteger begun = new AtomicInteger();
        long[] began = new long[2];
        CountDownLatch done = new CountDownLatch(records);
        ParallelConsumerOptions<byte[], byte[]> options =
                ParallelConsumerOptions.<byte[], byte[]>builder()
                        .ordering(ProcessingOrder.KEY)
                        .maxConcurrency(Integer.parseInt(words[4]))
                        .consumer(new KafkaConsumer<>(properties(words[1], words[3])))
                        .build();
        ParallelStreamProcessor<byte[], byte[]> processor =
                ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(words[2]));
        processor.poll(
                context -> {
                    if (begun.getAndIncrement() == 0) {
                        began[0] = System.nanoTime();
                        began[1] = PROCESS.getProcessCpuTime();
                    }
                    try {
                        Thread.sleep(sleepMs);
                    } catch (InterruptedException error) {
                        throw new IllegalStateException(error);
                    }
                    done.countDown();
                });
        boolean all = done.await(LIMIT_S, TimeUnit.SECONDS);
        double wall = (System.nanoTime() - began[0]) / 1e9;
        double cpu = (PROCESS.getProcessCpuTime() - began[1]) / 1e9;
        processor.closeDontDrainFirst();
        if (!all) {
            throw new IllegalStateException(done.getCount() + " records were not processed");
        }
        return "processed\t" + begun.get() + "\t" + cpu + "\t" + wall;
    }

    private static Properties properties(String servers, String group) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("group.id", group);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", ByteArrayDeserializer.class);
        properties.put("value.deserializer", ByteArrayDeserializer.class);
        return properties;
    }
}
