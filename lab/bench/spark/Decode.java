import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import java.util.zip.CRC32;

/**
 * One thread that makes an object of every record of a log: what a Java reader has to do.
 *
 * <p>Argument: the folder of the log's files, which are mapped. Every line of standard input is
 * a pass over all of them, answered with its nanoseconds by the clock and of processor time, its
 * records and its bytes.
 */
public final class Decode {
    private static final int VERSION_1 = 0xDAA320A7;
    private static final int VERSION_2 = 0xDAA320AB;
    private static final int BORN_IP6 = 0x10;
    private static final int STORE_IP6 = 0x20;
    private static final char[] DIGITS = "0123456789ABCDEF".toCharArray();

    private static final CRC32 SUM = new CRC32();

    private static long bytes;
    private static long damaged;
    /** What the last record was, so that no compiler may leave a record out. */
    private static Message last;

    /** A message with everything a consumer is given. */
    private static final class Message {
        int size;
        int bodyCrc;
        int queueId;
        int flag;
        long queueOffset;
        long physicalOffset;
        int sysFlag;
        long bornTime;
        InetSocketAddress bornHost;
        long storeTime;
        InetSocketAddress storeHost;
        int reconsumeTimes;
        long preparedOffset;
        byte[] body;
        String topic;
        Map<String, String> properties;
        String id;
    }

    private Decode() {
    }

    public static void main(String[] arguments) throws Exception {
        List<Path> paths = new ArrayList<>();
        try (Stream<Path> found = Files.list(Paths.get(arguments[0]))) {
            found.sorted().forEach(paths::add);
        }
        List<MappedByteBuffer> files = new ArrayList<>();
        for (Path path : paths) {
            try (FileChannel file = FileChannel.open(path, StandardOpenOption.READ)) {
                files.add(file.map(FileChannel.MapMode.READ_ONLY, 0, file.size()));
            }
        }
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        while (asked.readLine() != null) {
            bytes = damaged = 0;
            long spent = threads.getCurrentThreadCpuTime();
            long begun = System.nanoTime();
            long records = 0;
            for (MappedByteBuffer file : files) {
                records += pass(file.duplicate());
            }
            long took = System.nanoTime() - begun;
            spent = threads.getCurrentThreadCpuTime() - spent;
            if (damaged > 0) {
                throw new IllegalStateException(damaged + " records are damaged");
            }
            System.out.println(took + " " + spent + " " + records + " " + bytes);
        }
    }

    /** Decode one file up to its blank or its unwritten end. */
    private static long pass(ByteBuffer file) throws Exception {
        long records = 0;
        while (file.remaining() >= 8) {
            int start = file.position();
            Message message = decode(file);
            if (message == null) {
                break;
            }
            last = message;
            bytes += message.size;
            records++;
            file.position(start + message.size);
        }
        return records;
    }

    private static Message decode(ByteBuffer file) throws Exception {
        Message message = new Message();
        message.size = file.getInt();
        int magic = file.getInt();
        if (magic != VERSION_1 && magic != VERSION_2) {
            return null;
        }
        message.bodyCrc = file.getInt();
        message.queueId = file.getInt();
        message.flag = file.getInt();
        message.queueOffset = file.getLong();
        message.physicalOffset = file.getLong();
        message.sysFlag = file.getInt();
        message.bornTime = file.getLong();
        message.bornHost = host(file, (message.sysFlag & BORN_IP6) != 0);
        message.storeTime = file.getLong();
        message.storeHost = host(file, (message.sysFlag & STORE_IP6) != 0);
        message.reconsumeTimes = file.getInt();
        message.preparedOffset = file.getLong();
        message.body = take(file, file.getInt());
        SUM.reset();
        SUM.update(message.body);
        if (((int) SUM.getValue() & 0x7FFFFFFF) != message.bodyCrc) {
            damaged++;
        }
        int length = magic == VERSION_2 ? file.getShort() : file.get();
        message.topic = new String(take(file, length), StandardCharsets.UTF_8);
        String text = new String(take(file, file.getShort()), StandardCharsets.UTF_8);
        message.properties = properties(text);
        message.id = id(message.storeHost, message.physicalOffset);
        return message;
    }

    private static byte[] take(ByteBuffer file, int length) {
        byte[] found = new byte[length];
        file.get(found);
        return found;
    }

    private static InetSocketAddress host(ByteBuffer file, boolean longer) throws Exception {
        byte[] address = take(file, longer ? 16 : 4);
        return new InetSocketAddress(InetAddress.getByAddress(address), file.getInt());
    }

    /** Pairs are closed with byte 2, names with byte 1. */
    private static Map<String, String> properties(String text) {
        Map<String, String> found = new HashMap<>(16);
        int place = 0;
        while (place < text.length()) {
            int end = text.indexOf(2, place);
            if (end < 0) {
                end = text.length();
            }
            int split = text.indexOf(1, place);
            if (split > place && split < end - 1) {
                found.put(text.substring(place, split), text.substring(split + 1, end));
            }
            place = end + 1;
        }
        return found;
    }

    /** Store host and place in the log as hexadecimal digits. */
    private static String id(InetSocketAddress host, long offset) {
        byte[] address = host.getAddress().getAddress();
        ByteBuffer whole = ByteBuffer.allocate(address.length + 12);
        whole.put(address).putInt(host.getPort()).putLong(offset);
        char[] letters = new char[2 * whole.capacity()];
        for (int place = 0; place < whole.capacity(); place++) {
            letters[2 * place] = DIGITS[whole.get(place) >> 4 & 15];
            letters[2 * place + 1] = DIGITS[whole.get(place) & 15];
        }
        return new String(letters);
    }
}
