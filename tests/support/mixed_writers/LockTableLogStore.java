package tests;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.nio.file.FileAlreadyExistsException;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;
import software.amazon.awssdk.services.dynamodb.model.AttributeValue;
import software.amazon.awssdk.services.dynamodb.model.ConditionalCheckFailedException;
import software.amazon.awssdk.services.dynamodb.model.PutItemRequest;

/**
 * delta-spark's commits through a lock table, where its own S3DynamoDBLogStore cannot be had.
 *
 * Written for these tests from the layout of the table and the order of the steps; it takes a tempPath relative to
 * _delta_log, marks an entry complete whatever became of it, and takes a failure after the entry stands for a success.
 */
public class LockTableLogStore extends HadoopFileSystemLogStore {
    private static final long EXPIRY_SECONDS = 86_400;

    private final DynamoDbClient client;
    private final String table;

    public LockTableLogStore(Configuration conf) {
        super(conf);
        table = conf.get("spark.tests.lock.table");
        client = DynamoDbClient.builder()
            .endpointOverride(URI.create(conf.get("spark.tests.lock.endpoint")))
            .region(Region.of(conf.get("spark.tests.lock.region")))
            .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("tests", "tests")))
            .build();
    }

    @Override
    public Iterator<FileStatus> listFrom(Path path, Configuration conf) throws IOException {
        FileSystem fs = path.getFileSystem(conf);
        Path log = fs.makeQualified(path).getParent();
        var found = client.query(request -> request
            .tableName(table)
            .consistentRead(true)
            .scanIndexForward(false)
            .limit(1)
            .keyConditionExpression("tablePath = :table")
            .expressionAttributeValues(Map.of(":table", text(log.getParent().toString()))));
        if (found.hasItems() && !found.items().isEmpty()) {
            repair(fs, log, found.items().get(0));
        }
        return super.listFrom(path, conf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf)
            throws IOException {
        FileSystem fs = path.getFileSystem(conf);
        Path target = fs.makeQualified(path);
        Path log = target.getParent();
        String name = target.getName();
        if (!overwrite && fs.exists(target)) {
            throw new FileAlreadyExistsException(target.toString());
        }
        if (overwrite || !name.matches("\\d{20}\\.json")) {
            writeLines(fs, target, actions, overwrite);
            return;
        }
        requireVersionBefore(fs, log, name);
        Map<String, AttributeValue> entry = new HashMap<>(key(log, name));
        String temporary = ".tmp/" + name + "." + UUID.randomUUID();
        entry.put("tempPath", text(temporary));
        entry.put("complete", text("false"));
        writeLines(fs, new Path(log, temporary), actions, true);
        try {
            client.putItem(PutItemRequest.builder()
                .tableName(table)
                .item(entry)
                .conditionExpression("attribute_not_exists(fileName)")
                .build());
        } catch (ConditionalCheckFailedException taken) {
            throw new FileAlreadyExistsException(target.toString());
        }
        try {
            copy(fs, new Path(log, temporary), target);
            complete(entry);
        } catch (IOException | RuntimeException repairable) {
            // The entry stands, so the commit does.
        }
    }

    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration conf) {
        return false;
    }

    private void requireVersionBefore(FileSystem fs, Path log, String name) throws IOException {
        long version = Long.parseLong(name.substring(0, 20));
        if (version == 0) {
            return;
        }
        String before = String.format("%020d.json", version - 1);
        var found = client.getItem(request -> request.tableName(table).consistentRead(true).key(key(log, before)));
        if (found.hasItem()) {
            repair(fs, log, found.item());
        }
        if (!fs.exists(new Path(log, before))) {
            throw new IOException("the commit before " + name + " is missing");
        }
    }

    private void repair(FileSystem fs, Path log, Map<String, AttributeValue> entry) throws IOException {
        if (entry.get("complete").s().equals("true")) {
            return;
        }
        Path target = new Path(log, entry.get("fileName").s());
        for (int attempt = 0; !fs.exists(target); attempt++) {
            try {
                copy(fs, new Path(log, entry.get("tempPath").s()), target);
            } catch (FileAlreadyExistsException | FileNotFoundException others) {
                // Another writer repairs it at the same time, or delta-rs moved the file.
                if (attempt == 3) {
                    throw others;
                }
            }
        }
        complete(entry);
    }

    private void complete(Map<String, AttributeValue> entry) {
        Map<String, AttributeValue> item = new HashMap<>(entry);
        item.put("complete", text("true"));
        long expiry = System.currentTimeMillis() / 1000 + EXPIRY_SECONDS;
        item.put("expireTime", AttributeValue.builder().n(Long.toString(expiry)).build());
        client.putItem(request -> request.tableName(table).item(item));
    }

    private static void copy(FileSystem fs, Path from, Path to) throws IOException {
        byte[] content;
        try (FSDataInputStream input = fs.open(from)) {
            content = input.readAllBytes();
        }
        try (OutputStream output = fs.create(to, false)) {
            output.write(content);
        } catch (org.apache.hadoop.fs.FileAlreadyExistsException exists) {
            throw new FileAlreadyExistsException(to.toString());
        }
    }

    private static void writeLines(FileSystem fs, Path path, Iterator<String> lines, boolean overwrite)
            throws IOException {
        StringBuilder content = new StringBuilder();
        while (lines.hasNext()) {
            content.append(lines.next()).append('\n');
        }
        try (OutputStream output = fs.create(path, overwrite)) {
            output.write(content.toString().getBytes(UTF_8));
        }
    }

    private static Map<String, AttributeValue> key(Path log, String name) {
        return Map.of("tablePath", text(log.getParent().toString()), "fileName", text(name));
    }

    private static AttributeValue text(String value) {
        return AttributeValue.builder().s(value).build();
    }
}
