import io.delta.storage.S3SingleDriverLogStore;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Iterator;
import java.util.List;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** A commit of delta-spark without a lock, which stops between its look and its write until a line comes in. */
class SingleDriverCommit {
    public static void main(String[] arguments) throws IOException {
        Configuration conf = new Configuration();
        for (String setting : List.of(arguments).subList(1, arguments.length)) {
            conf.set(setting.split("=", 2)[0], setting.split("=", 2)[1]);
        }
        Iterator<String> lines = Stream.of("delta-spark").peek(line -> await()).iterator();
        new S3SingleDriverLogStore(conf).write(new Path(arguments[0]), lines, false, conf);
        System.out.println("committed");
    }

    private static void await() {
        System.out.println("looked");
        try {
            System.in.read();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
