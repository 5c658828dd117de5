package aioprod;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** Writes each push of metrics by a client into a file of the directory aioprod.metrics.directory. */
public class MetricsToFiles implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    private final AtomicInteger number = new AtomicInteger();
    private Path directory;

    public void configure(Map<String, ?> settings) {
        directory = Path.of((String) settings.get("aioprod.metrics.directory"));
    }

    public void init(List<KafkaMetric> metrics) {}

    public void metricChange(KafkaMetric metric) {}

    public void metricRemoval(KafkaMetric metric) {}

    public void close() {}

    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    public void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        ByteBuffer data = payload.data().duplicate();
        byte[] content = new byte[data.remaining()];
        data.get(content);
        String name = String.join("~", String.format("%06d", number.incrementAndGet()),
            context.clientId(), payload.clientInstanceId().toString(),
            Boolean.toString(payload.isTerminating()), payload.contentType());
        try {
            Path written = Files.write(directory.resolve("." + name), content);
            Files.move(written, directory.resolve(name), StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
