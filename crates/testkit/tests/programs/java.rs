//! Java: its HttpServer and HttpClient, which are NIO selectors and threads.

use crosslane_testkit::{Host, free_port, on_both_routes};

/// `serve PORT` echoes bodies; `ask PORT` prints OK when all have come back as they were sent.
const PROGRAM: &str = r#"
import com.sun.net.httpserver.HttpServer;
import java.net.*;
import java.net.http.*;
import java.util.*;
import java.util.concurrent.*;

public class Talk {
    public static void main(String[] words) throws Exception {
        int port = Integer.parseInt(words[1]);
        if (words[0].equals("serve")) serve(port); else ask(port);
    }

    static void serve(int port) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 64);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, body.length == 0 ? -1 : body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }

    static void ask(int port) throws Exception {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        URI address = URI.create("http://127.0.0.1:" + port + "/");
        Random random = new Random(7);
        for (int round = 0; round < 20; round++) {
            List<byte[]> bodies = new ArrayList<>();
            List<CompletableFuture<HttpResponse<byte[]>>> answers = new ArrayList<>();
            for (int number = 0; number < 8; number++) {
                byte[] body = new byte[1 + random.nextInt(200000)];
                random.nextBytes(body);
                bodies.add(body);
                HttpRequest request = HttpRequest.newBuilder(address)
                    .POST(HttpRequest.BodyPublishers.ofByteArray(body)).build();
                answers.add(client.sendAsync(request, HttpResponse.BodyHandlers.ofByteArray()));
            }
            for (int number = 0; number < 8; number++)
                if (!Arrays.equals(answers.get(number).get().body(), bodies.get(number)))
                    throw new AssertionError("the body came back changed");
        }
        System.out.println("OK");
    }
}
"#;

fn bodies_over_kept_connections(host: &Host) {
    let port = free_port();
    let file = host.file("Talk.java", PROGRAM);
    let classes = host.plain("javac").arg(&file);
    let _compiled = classes.run();
    let java = |what: &str| {
        let quick = [
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xmx256m",
            "-cp",
            ".",
        ];
        let program = host.program("java").args(quick);
        program.args(["Talk", what, &port.to_string()])
    };
    let server = java("serve").start();
    server.wait_for_port(port);
    let witness = host.witness(port);
    assert_eq!(java("ask").run().text(), "OK\n");
    witness.assert_ring_share(0.5);
    server.assert_running();
}

on_both_routes!(bodies_over_kept_connections);
