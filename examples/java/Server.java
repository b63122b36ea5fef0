import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.LocalTime;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * A web server that leaves well. JDK 17 or newer, modules java.base and jdk.httpserver.
 *
 * <p>GET / answers "ok"; GET /MS takes so many milliseconds for it; GET /ready is for the readiness probe.
 */
public final class Server {
    /** How long it must be quiet after TERM until nobody is expected any more, and how long that is waited for. */
    private static final long QUIET_MS = 1_000;
    private static final long LINGER_MOST_MS = 5_000;
    /** How long what is under way may take after that. Together less than terminationGracePeriodSeconds (30). */
    private static final long DRAIN_MOST_MS = 20_000;
    /** How long a request may ask the server to take. */
    private static final long REQUEST_MOST_MS = 10_000;

    private static final Object CHANGED = new Object();
    private static int underWay;
    private static long lastAnswer = System.nanoTime();
    private static volatile boolean isLeaving;

    public static void main(String[] arguments) throws IOException {
        // Not daemons: but what keeps them alive after TERM is the hook alone, for the JVM halts when the hooks are done.
        ExecutorService threads = Executors.newFixedThreadPool(64);
        HttpServer server = HttpServer.create(new InetSocketAddress(8080), 128);
        server.createContext("/", Server::handle);
        server.setExecutor(threads);
        // On TERM the JVM starts its hooks, all at once and in no order. So there is one, which does everything in its order.
        // System.exit() in it would wait for itself for ever. When it returns, the exit code is 143, 128 + 15 for TERM.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> leave(server, threads), "leave"));
        server.start();
        say("ready");
    }

    private static void handle(HttpExchange exchange) throws IOException {
        String path = exchange.getRequestURI().getPath();
        synchronized (CHANGED) {
            underWay++;
        }
        try (exchange) {
            if (path.matches("/[0-9]{1,5}")) {
                Thread.sleep(Math.min(Long.parseLong(path.substring(1)), REQUEST_MOST_MS));
            }
            boolean isReady = !isLeaving || !path.equals("/ready");
            byte[] body = (isReady ? "ok" : "leaving").getBytes(StandardCharsets.US_ASCII);
            // Looked at after the work: TERM may have come meanwhile. Whoever asked for the end of the connection is told of it, too.
            if (isLeaving || "close".equalsIgnoreCase(exchange.getRequestHeaders().getFirst("Connection"))) {
                exchange.getResponseHeaders().set("Connection", "close");
            }
            exchange.sendResponseHeaders(isReady ? 200 : 503, body.length);
            exchange.getResponseBody().write(body);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } finally {
            synchronized (CHANGED) {
                underWay--;
                // A probe asks every second to the end: it is nobody who would have to hang up.
                if (!path.equals("/ready")) {
                    lastAnswer = System.nanoTime();
                }
                CHANGED.notifyAll();
            }
        }
    }

    private static void leave(HttpServer server, ExecutorService threads) {
        isLeaving = true;
        try {
            // Idle connections are not counted by this server: every answer says "Connection: close" until it is quiet.
            long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LINGER_MOST_MS);
            synchronized (CHANGED) {
                say("asked to leave: " + underWay + " requests are under way");
                long quietAt = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(QUIET_MS);
                for (long left; (left = Math.min(quietAt, until) - System.nanoTime()) > 0; ) {
                    TimeUnit.NANOSECONDS.timedWait(CHANGED, left);
                    quietAt = Math.max(quietAt, lastAnswer + TimeUnit.MILLISECONDS.toNanos(QUIET_MS));
                }
                until += TimeUnit.MILLISECONDS.toNanos(DRAIN_MOST_MS);
                while (underWay > 0 && System.nanoTime() < until) {
                    TimeUnit.NANOSECONDS.timedWait(CHANGED, until - System.nanoTime());
                }
            }
            // stop(seconds) of JDK 17 waits all the seconds, however little is under way; what is waited for was waited for.
            server.stop(0);
            threads.shutdown();
            boolean isDone = threads.awaitTermination(1, TimeUnit.SECONDS);
            say(isDone ? "left: every request is answered" : "left: something is cut off");
        } catch (InterruptedException interrupted) {
            say("left: interrupted");
        }
    }

    private static void say(String text) {
        System.out.println(LocalTime.now() + " " + text);
    }
}
