package tests;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** delta-spark's commits on S3 by conditional requests (If-None-Match), as those of delta-rs and ours. */
public class ConditionalLogStore extends HadoopFileSystemLogStore {
    public ConditionalLogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf)
            throws IOException {
        var body = new StringBuilder();
        actions.forEachRemaining(line -> body.append(line).append('\n'));
        var system = path.getFileSystem(conf);
        var builder = system.createFile(path).overwrite(true).recursive();
        if (!overwrite) {
            builder.must("fs.option.create.conditional.overwrite", true);
        }
        try (var out = builder.build()) {
            out.write(body.toString().getBytes(UTF_8));
        } catch (IOException error) {
            // Another writer was faster. A request of ours that is repeated after a lost answer would look the same, and
            // delta-spark then reads the file and compares.
            if (overwrite || !system.exists(path)) {
                throw error;
            }
            throw new FileAlreadyExistsException(path.toString());
        }
    }

    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration conf) {
        return false;
    }
}
