package tests;

import org.apache.spark.sql.api.java.UDF3;

/**
 * A condition that is true, and takes its time for one row: it makes a statement as long as one on a large table, without its work.
 */
public class Nap implements UDF3<Long, Long, Integer, Boolean> {
    @Override
    public Boolean call(Long id, Long chosen, Integer millis) throws InterruptedException {
        if (id != null && id.equals(chosen)) {
            Thread.sleep(millis);
        }
        return true;
    }
}
