import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.io.JsonEncoder;

/**
 * Reads a case from each line, and prints what Java's Avro makes of it: records of the schema
 * "writer" in "data", or in "json", as the schema "reader" has them, as bytes and as JSON.
 */
public class AvroJudge {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                judge(JSON.readTree(line), answer);
            } catch (Exception | StackOverflowError error) {
                answer.put("error", error.getClass().getName() + ": " + error.getMessage());
            }
            System.out.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            System.out.flush();
        }
    }

    private static void judge(JsonNode given, ObjectNode answer) throws Exception {
        Schema writer = new Schema.Parser().parse(given.get("writer").asText());
        Schema reader = given.has("reader")
            ? new Schema.Parser().parse(given.get("reader").asText())
            : writer;
        GenericDatumReader<Object> read = new GenericDatumReader<>(writer, reader);
        Object value;
        if (given.has("json")) {
            value = read.read(
                null, DecoderFactory.get().jsonDecoder(writer, given.get("json").asText()));
        } else {
            byte[] data = Base64.getDecoder().decode(given.get("data").asText());
            BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(data, null);
            value = read.read(null, decoder);
            if (!decoder.isEnd()) {
                throw new IllegalArgumentException("bytes follow the data");
            }
        }
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        BinaryEncoder binary = EncoderFactory.get().binaryEncoder(bytes, null);
        new GenericDatumWriter<>(reader).write(value, binary);
        binary.flush();
        answer.put("data", Base64.getEncoder().encodeToString(bytes.toByteArray()));
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        JsonEncoder encoder = EncoderFactory.get().jsonEncoder(reader, text);
        new GenericDatumWriter<>(reader).write(value, encoder);
        encoder.flush();
        answer.put("json", text.toString(StandardCharsets.UTF_8));
    }
}
