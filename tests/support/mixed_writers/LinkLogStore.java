package tests;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * delta-spark's commits on a disk by hard links, as those of delta-rs and ours.
 *
 * Its own LocalLogStore looks and then renames, which is safe among the threads of one JVM and nowhere else.
 */
public class LinkLogStore extends HadoopFileSystemLogStore {
    public LinkLogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf)
            throws IOException {
        var target = java.nio.file.Path.of(path.toUri().getPath());
        var temporary = target.resolveSibling("." + UUID.randomUUID() + ".tmp");
        Files.write(temporary, (Iterable<String>) () -> actions, UTF_8);
        try {
            if (overwrite) {
                Files.move(temporary, target, StandardCopyOption.ATOMIC_MOVE);
            } else {
                // A name that is taken is a FileAlreadyExistsException, which is what delta-spark waits for.
                Files.createLink(target, temporary);
            }
        } finally {
            Files.deleteIfExists(temporary);
        }
    }

    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration conf) {
        return false;
    }
}
