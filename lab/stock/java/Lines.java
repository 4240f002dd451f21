import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Commands and answers, one JSON object a line; each command runs in a thread of its own. */
final class Lines {
    /** What a command does. */
    interface Command {
        /** @return the answer that ends the command */
        Object run(JSONObject asked, Teller teller) throws Exception;
    }

    /** Says something about a command before it ends. */
    interface Teller {
        void tell(Map<String, Object> what);
    }

    private final Map<String, Command> commands = new TreeMap<>();
    private final PrintStream out;
    private final ExecutorService threads = Executors.newCachedThreadPool(run -> {
        Thread thread = new Thread(run);
        thread.setDaemon(true);
        return thread;
    });

    Lines(PrintStream out) {
        this.out = out;
    }

    void on(String name, Command command) {
        commands.put(name, command);
    }

    /** Serve until stdin ends. */
    void serve() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        say(new JSONObject().fluentPut("news", "ready"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject asked = JSON.parseObject(line);
            threads.execute(() -> answer(asked));
        }
    }

    private void answer(JSONObject asked) {
        int number = asked.getIntValue("number");
        JSONObject last = new JSONObject().fluentPut("number", number).fluentPut("done", true);
        try {
            Command command = commands.get(asked.getString("do"));
            last.put("answer", command.run(asked, what -> {
                what.put("number", number);
                say(what);
            }));
        } catch (Throwable error) {
            error.printStackTrace();
            last.put("error", error.toString());
        }
        say(last);
    }

    private void say(Map<String, Object> what) {
        String line = JSON.toJSONString(what);
        synchronized (out) {
            out.print(line + "\n");
            out.flush();
        }
    }
}
