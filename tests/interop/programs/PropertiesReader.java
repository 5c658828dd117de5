import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.util.Properties;
import java.util.TreeMap;

/** Reads properties files from standard input, each after its length; prints their properties. */
public class PropertiesReader {
    public static void main(String[] arguments) throws Exception {
        DataInputStream input = new DataInputStream(System.in);
        int files = input.readInt();
        StringBuilder output = new StringBuilder();
        for (int file = 0; file < files; file++) {
            byte[] data = new byte[input.readInt()];
            input.readFully(data);
            Properties properties = new Properties();
            try {
                properties.load(new ByteArrayInputStream(data));
                for (var each : new TreeMap<Object, Object>(properties).entrySet()) {
                    output.append(hex(each.getKey())).append(' ').append(hex(each.getValue()));
                    output.append(';');
                }
            } catch (IllegalArgumentException error) {
                output.append("invalid");
            }
            output.append('\n');
        }
        System.out.print(output);
    }

    private static String hex(Object text) {
        StringBuilder units = new StringBuilder("x");
        for (char unit : text.toString().toCharArray()) {
            units.append(String.format("%04x", (int) unit));
        }
        return units.toString();
    }
}
