import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.Options;
import org.apache.commons.cli.PosixParser;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/** The commands of mqadmin, one after the other in this JVM. */
final class Commands {
    private Commands() {
    }

    /**
     * Run a command as its stock tool would, but for what that does with a faulty command line: it ends.
     * One that never ends is interrupted after so many `seconds`.
     *
     * @return what it has `printed`, and the `error` it ended with if it did
     */
    static synchronized Object run(JSONObject asked, Lines.Teller teller) throws Exception {
        List<String> words = new ArrayList<>(asked.getJSONArray("words").toJavaList(String.class));
        SubCommand command = find(words.remove(0));
        Options options = command.buildCommandlineOptions(new Options()
            .addOption("h", "help", false, "").addOption("n", "namesrvAddr", true, ""));
        CommandLine line = new PosixParser().parse(options, words.toArray(new String[0]));
        System.setProperty("rocketmq.namesrv.addr", asked.getString("namesrv"));
        Map<String, Object> told = new HashMap<>();
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, "UTF-8"));
        System.setErr(new PrintStream(complained, true, "UTF-8"));
        try {
            Thread running = new Thread(() -> {
                try {
                    command.execute(line, options, null);
                } catch (Exception error) {
                    told.put("error", said(error));
                }
            });
            running.start();
            finish(running, asked.getIntValue("seconds"));
        } finally {
            System.setOut(out);
            System.setErr(err);
            System.clearProperty("rocketmq.namesrv.addr");
        }
        told.put("printed", new String(printed.toByteArray(), StandardCharsets.UTF_8));
        told.put("complained", new String(complained.toByteArray(), StandardCharsets.UTF_8));
        return told;
    }

    /** Wait for its end.  A client of 5.x often waits three seconds for a thread of its own that could end at once. */
    private static void finish(Thread running, int seconds) throws InterruptedException {
        long enough = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        for (running.join(100); running.isAlive(); running.join(100)) {
            if (seconds > 0 && System.nanoTime() > enough) {
                running.interrupt();
            }
            for (StackTraceElement frame : running.getStackTrace()) {
                if (frame.getClassName().endsWith(".ServiceThread") && frame.getMethodName().equals("shutdown")) {
                    Thread.getAllStackTraces().keySet().stream()
                        .filter(thread -> thread.getName().equals("NettyEventExecutor"))
                        .forEach(Thread::interrupt);
                }
            }
        }
    }

    /** A fresh one: some keep their clients. */
    private static SubCommand find(String name) throws Exception {
        Method finding = MQAdminStartup.class.getDeclaredMethod("findSubCommand", String.class);
        finding.setAccessible(true);
        if (finding.invoke(null, name) == null) {
            MQAdminStartup.initCommand();
        }
        SubCommand found = (SubCommand) finding.invoke(null, name);
        if (found == null) {
            throw new IllegalArgumentException("there is no command " + name);
        }
        return found.getClass().getDeclaredConstructor().newInstance();
    }

    /** What an error and its causes say. */
    private static String said(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            text.append(cause).append("\n");
        }
        return text.toString();
    }
}
