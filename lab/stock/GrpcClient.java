import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Function;
import org.apache.rocketmq.client.apis.*;
import org.apache.rocketmq.client.apis.consumer.*;
import org.apache.rocketmq.client.apis.message.*;
import org.apache.rocketmq.client.apis.producer.*;

/**
 * What users of the official Java client of gRPC do, each by itself and all side by side.
 *
 * java -cp 'lib/*' GrpcClient.java 127.0.0.1:8081 [scenario ...]
 *
 * Needs the topics normal, single, letters, fifo, ordered, delay and tx, whose attribute message.type is three times NORMAL, twice FIFO, DELAY and
 * TRANSACTION, and the groups
 * g-push, g-simple, g-fifo (orderly), g-delay, g-tx, g-filter-tag, g-filter-sql, g-dlq and g-fifodlq (orderly), of which the last two
 * try once more.  The scenario restart is done only where it is asked for.  Prints PASS or FAIL, the name, how long it took and what was wrong.
 */
public class GrpcClient {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final String RUN = Long.toString(System.currentTimeMillis() / 1000);
    static ClientConfiguration configuration;

    interface Scenario { void run() throws Exception; }

    /** Keeps what arrives. */
    static class Seen implements MessageListener {
        final Map<String, Long> at = new ConcurrentHashMap<>();
        final List<String> order = new CopyOnWriteArrayList<>();
        final Map<String, MessageView> views = new ConcurrentHashMap<>();
        final Function<String, ConsumeResult> decide;
        Seen() { this(b -> ConsumeResult.SUCCESS); }
        Seen(Function<String, ConsumeResult> decide) { this.decide = decide; }
        public ConsumeResult consume(MessageView m) {
            String b = body(m);
            if (b.contains(RUN)) { order.add(b); at.putIfAbsent(b, System.currentTimeMillis()); views.putIfAbsent(b, m); }
            return decide.apply(b);
        }
        void await(int seconds, String... bodies) throws Exception {
            long end = System.currentTimeMillis() + seconds * 1000L;
            while (!at.keySet().containsAll(Arrays.asList(bodies))) {
                if (System.currentTimeMillis() > end) throw new Exception("only " + order);
                Thread.sleep(50);
            }
        }
    }

    static String body(MessageView m) {
        ByteBuffer b = m.getBody();
        byte[] bytes = new byte[b.remaining()];
        b.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static Producer producer(TransactionChecker checker, String... topics) throws Exception {
        ProducerBuilder b = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topics);
        if (checker != null) b.setTransactionChecker(checker);
        return b.build();
    }

    static PushConsumer push(String group, String topic, MessageListener listener, FilterExpression filter) throws Exception {
        return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(Collections.singletonMap(topic, filter)).setMessageListener(listener).build();
    }

    static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static void normal() throws Exception {
        Seen seen = new Seen();
        try (PushConsumer c = push("g-push", "normal", seen, FilterExpression.SUB_ALL); Producer p = producer(null, "normal")) {
            SendReceipt r = p.send(message("normal", "jn-" + RUN).setTag("TagA").setKeys("k1", "k2").addProperty("colour", "blue").build());
            List<CompletableFuture<SendReceipt>> futures = new ArrayList<>();
            for (int i = 0; i < 20; i++) futures.add(p.sendAsync(message("normal", "jn-" + RUN + "-" + i).build()));
            for (CompletableFuture<SendReceipt> f : futures) f.get(20, TimeUnit.SECONDS);
            StringBuilder big = new StringBuilder("jbig-" + RUN);
            while (big.length() < 10000) big.append("0123456789");
            p.send(message("normal", big.toString()).build());
            seen.await(40, "jn-" + RUN, "jn-" + RUN + "-19", big.toString());
            MessageView m = seen.views.get("jn-" + RUN);
            if (!m.getMessageId().equals(r.getMessageId()) || !m.getKeys().containsAll(Arrays.asList("k1", "k2"))
                || !m.getTag().get().equals("TagA") || !"blue".equals(m.getProperties().get("colour"))) throw new Exception("" + m);
        }
    }

    static void simple() throws Exception {
        try (Producer p = producer(null, "single");
             SimpleConsumer c = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup("g-simple")
                 .setSubscriptionExpressions(Collections.singletonMap("single", FilterExpression.SUB_ALL)).setAwaitDuration(Duration.ofSeconds(5)).build()) {
            p.send(message("single", "js-" + RUN).build());
            long end = System.currentTimeMillis() + 90000;
            int attempt = 0;
            while (attempt < 2 && System.currentTimeMillis() < end) {
                for (MessageView m : c.receive(16, Duration.ofSeconds(10))) {
                    if (!body(m).equals("js-" + RUN)) { c.ack(m); continue; }
                    attempt = m.getDeliveryAttempt();
                    if (attempt == 1) c.changeInvisibleDuration(m, Duration.ofSeconds(12)); else c.ack(m);
                }
            }
            if (attempt != 2) throw new Exception("attempt " + attempt);
        }
    }

    static void filters() throws Exception {
        Seen tagged = new Seen(), sql = new Seen();
        try (PushConsumer a = push("g-filter-tag", "normal", tagged, new FilterExpression("TagX || TagY", FilterExpressionType.TAG));
             PushConsumer b = push("g-filter-sql", "normal", sql, new FilterExpression("price > 10", FilterExpressionType.SQL92));
             Producer p = producer(null, "normal")) {
            Thread.sleep(3000);
            String[] tags = {"TagX", "TagY", "TagZ"};
            for (int i = 0; i < 3; i++)
                p.send(message("normal", "jf-" + RUN + "-" + i).setTag(tags[i]).addProperty("price", "" + (5 + 10 * i)).build());
            tagged.await(30, "jf-" + RUN + "-0", "jf-" + RUN + "-1");
            sql.await(30, "jf-" + RUN + "-1", "jf-" + RUN + "-2");
            Thread.sleep(2000);
            if (tagged.order.contains("jf-" + RUN + "-2") || sql.order.contains("jf-" + RUN + "-0")) throw new Exception(tagged.order + " " + sql.order);
        }
    }

    static void fifo() throws Exception {
        Set<String> failed = ConcurrentHashMap.newKeySet();
        Seen seen = new Seen(b -> b.endsWith("-3") && failed.add(b) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS);
        try (PushConsumer c = push("g-fifo", "fifo", seen, FilterExpression.SUB_ALL); Producer p = producer(null, "fifo")) {
            List<String> wanted = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                p.send(message("fifo", "jo-" + RUN + "-" + i).setMessageGroup("order-1").build());
                wanted.add("jo-" + RUN + "-" + i);
                if (i == 3) wanted.add("jo-" + RUN + "-3");
            }
            seen.await(60, "jo-" + RUN + "-7");
            if (!seen.order.equals(wanted)) throw new Exception("" + seen.order);
        }
    }

    static void delay() throws Exception {
        Seen seen = new Seen();
        try (PushConsumer c = push("g-delay", "delay", seen, FilterExpression.SUB_ALL); Producer p = producer(null, "delay")) {
            long due = System.currentTimeMillis() + 8000;
            p.send(message("delay", "jd-" + RUN + "-kept").setDeliveryTimestamp(due).build());
            SendReceipt gone = p.send(message("delay", "jd-" + RUN + "-gone").setDeliveryTimestamp(due + 4000).build());
            p.recallMessage("delay", gone.getRecallHandle());
            seen.await(40, "jd-" + RUN + "-kept");
            long late = seen.at.get("jd-" + RUN + "-kept") - due;
            if (late < -1000 || late > 10000) throw new Exception("late " + late);
            Thread.sleep(8000);
            if (seen.order.contains("jd-" + RUN + "-gone")) throw new Exception("recalled message came");
        }
    }

    static void transaction() throws Exception {
        Set<String> asked = ConcurrentHashMap.newKeySet();
        Seen seen = new Seen();
        try (PushConsumer c = push("g-tx", "tx", seen, FilterExpression.SUB_ALL);
             Producer p = producer(m -> { asked.add(body(m)); return TransactionResolution.COMMIT; }, "tx")) {
            for (String end : new String[] {"commit", "rollback", "orphan"}) {
                Transaction t = p.beginTransaction();
                p.send(message("tx", "jt-" + RUN + "-" + end).build(), t);
                if (end.equals("commit")) t.commit(); else if (end.equals("rollback")) t.rollback();
            }
            seen.await(20, "jt-" + RUN + "-commit");
            seen.await(120, "jt-" + RUN + "-orphan");
            if (!asked.contains("jt-" + RUN + "-orphan") || seen.order.contains("jt-" + RUN + "-rollback")) throw new Exception(asked + " " + seen.order);
        }
    }

    static void dead_letter() throws Exception {
        Seen seen = new Seen(b -> ConsumeResult.FAILURE), ordered = new Seen(b -> ConsumeResult.FAILURE);
        try (PushConsumer a = push("g-dlq", "letters", seen, FilterExpression.SUB_ALL);
             PushConsumer b = push("g-fifodlq", "ordered", ordered, FilterExpression.SUB_ALL);
             Producer p = producer(null, "letters", "ordered")) {
            Thread.sleep(3000);
            p.send(message("letters", "jx-" + RUN).build());
            p.send(message("ordered", "jy-" + RUN).setMessageGroup("order-9").build());
            long end = System.currentTimeMillis() + 100000;
            while (Collections.frequency(seen.order, "jx-" + RUN) < 2 && System.currentTimeMillis() < end) Thread.sleep(200);
            Thread.sleep(25000);
            if (Collections.frequency(seen.order, "jx-" + RUN) != 2 || Collections.frequency(ordered.order, "jy-" + RUN) != 2)
                throw new Exception(seen.order + " " + ordered.order);
        }
    }

    static void errors() throws Exception {
        try (Producer p = producer(null, "normal")) {
            for (Message m : new Message[] {message("no-such-topic", "x").build(), message("normal", "x").setMessageGroup("g").build(),
                PROVIDER.newMessageBuilder().setTopic("normal").setBody(new byte[4 * 1024 * 1024 + 1]).build()})
                try {
                    throw new Exception("accepted " + p.send(m));
                } catch (ClientException | IllegalArgumentException refused) {
                    continue;
                }
        }
    }

    /** Sends and gets for a while, in which the proxy is started anew. */
    static void restart() throws Exception {
        Seen seen = new Seen();
        List<String> sent = new ArrayList<>();
        try (PushConsumer c = push("g-push", "normal", seen, FilterExpression.SUB_ALL); Producer p = producer(null, "normal")) {
            long last = System.currentTimeMillis(), longest = 0, end = last + 120000;
            boolean away = false;
            for (int i = 0; System.currentTimeMillis() < end; i++) {
                String body = "jr-" + RUN + "-" + i;
                try {
                    p.send(message("normal", body).build());
                    long now = System.currentTimeMillis();
                    if (away) {
                        longest = Math.max(longest, now - last);
                        end = now + 30000;
                        away = false;
                    }
                    last = now;
                    sent.add(body);
                } catch (Exception none) {
                    away = true;
                    Thread.sleep(100);
                }
                Thread.sleep(100);
            }
            if (longest == 0) throw new Exception("nothing happened to the proxy");
            if (longest > 60000) throw new Exception("sent nothing for " + longest + " ms");
            seen.await(90, sent.toArray(new String[0]));
            System.out.println("sent nothing for " + longest + " ms");
        }
    }

    public static void main(String[] args) throws Exception {
        ClientConfigurationBuilder b = ClientConfiguration.newBuilder().setEndpoints(args[0]);
        b.enableSsl(false);
        configuration = b.build();
        List<String> names = Arrays.asList(args).subList(1, args.length);
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("normal", GrpcClient::normal);
        all.put("simple", GrpcClient::simple);
        all.put("filters", GrpcClient::filters);
        all.put("fifo", GrpcClient::fifo);
        all.put("delay", GrpcClient::delay);
        all.put("transaction", GrpcClient::transaction);
        all.put("dead_letter", GrpcClient::dead_letter);
        all.put("errors", GrpcClient::errors);
        if (names.contains("restart")) all.put("restart", GrpcClient::restart);
        List<Thread> threads = new ArrayList<>();
        for (String name : names.isEmpty() ? new ArrayList<>(all.keySet()) : names) {
            Thread thread = new Thread(() -> {
                long began = System.currentTimeMillis();
                String verdict = "PASS", fault = "";
                try {
                    all.get(name).run();
                } catch (Throwable e) {
                    verdict = "FAIL";
                    fault = e.toString().replace('\n', ' ');
                }
                System.out.printf("%s %s %.1f %s%n", verdict, name, (System.currentTimeMillis() - began) / 1000.0, fault);
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) thread.join();
        System.exit(0);
    }
}
