import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A stock pull consumer that checks every body and drops it.
 *
 * <p>Arguments: name server, seconds of a pass, topics. Every line of standard input is a pass over
 * the topics' queues from their beginning, answered with nanoseconds, messages and stored bytes.
 */
public final class Consume {
    private static final int BATCH = 32;

    private Consume() {
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("bench" + System.nanoTime());
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setVipChannelEnabled(false);
        consumer.start();
        long most = (long) (1e9 * Double.parseDouble(arguments[1]));
        List<MessageQueue> queues = new ArrayList<>();
        for (int n = 2; n < arguments.length; n++) {
            queues.addAll(consumer.fetchSubscribeMessageQueues(arguments[n]));
        }
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        while (asked.readLine() != null) {
            pass(consumer, queues, most);
        }
        consumer.shutdown();
        System.exit(0);
    }

    private static void pass(DefaultMQPullConsumer consumer, List<MessageQueue> queues, long most)
            throws Exception {
        CRC32 sum = new CRC32();
        long messages = 0;
        long bytes = 0;
        long begun = System.nanoTime();
        for (MessageQueue queue : queues) {
            long offset = consumer.minOffset(queue);
            while (System.nanoTime() - begun < most) {
                PullResult result = consumer.pull(queue, "*", offset, BATCH);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        sum.reset();
                        sum.update(message.getBody());
                        if (((int) sum.getValue() & 0x7FFFFFFF) != message.getBodyCRC()) {
                            throw new IllegalStateException("damaged: " + message);
                        }
                        messages++;
                        bytes += message.getStoreSize();
                    }
                } else if (result.getPullStatus() == PullStatus.NO_NEW_MSG
                        || result.getNextBeginOffset() <= offset) {
                    break;
                }
                offset = result.getNextBeginOffset();
            }
        }
        System.out.println((System.nanoTime() - begun) + " " + messages + " " + bytes);
    }
}
