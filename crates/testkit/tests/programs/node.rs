//! Node.js: its http server and client, streams from files, and libuv's inclination to io_uring.

use crosslane_testkit::{Host, Route, free_port, on_both_routes, skipped};

use super::{body, sha256};

/// The first version of libuv that asks for it.
const FIRST_WITH_IO_URING: [u32; 2] = [1, 45];

/// Answers POST with the body and its SHA-256, and GET with a file.
const SERVER: &str = r#"
const http = require('http'), fs = require('fs'), crypto = require('crypto');
http.createServer((request, response) => {
  if (request.method === 'GET') {
    fs.createReadStream('served').pipe(response);
    return;
  }
  const parts = [];
  request.on('data', part => parts.push(part));
  request.on('end', () => {
    const whole = Buffer.concat(parts);
    const hash = crypto.createHash('sha256').update(whole).digest('hex');
    response.setHeader('x-sha256', hash);
    response.end(whole);
  });
}).listen(process.argv[1], '127.0.0.1');
"#;

/// Prints OK when everything has come back as it was sent.
const CLIENT: &str = r#"
const http = require('http'), fs = require('fs'), crypto = require('crypto');
const agent = new http.Agent({keepAlive: true, maxSockets: 8});
const sum = bytes => crypto.createHash('sha256').update(bytes).digest('hex');
function ask(method, bytes) {
  return new Promise((resolve, reject) => {
    const options = {host: '127.0.0.1', port: process.argv[1], method, agent};
    const request = http.request(options, response => {
      const parts = [];
      response.on('data', part => parts.push(part));
      response.on('end', () => resolve([response, Buffer.concat(parts)]));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(bytes);
  });
}
async function talk(number) {
  for (let round = 0; round < 25; round++) {
    const bytes = crypto.randomBytes(1 + (number * 7919 + round * 104729) % 300000);
    const [response, back] = await ask('POST', bytes);
    if (!back.equals(bytes)) throw new Error('the body came back changed');
    if (response.headers['x-sha256'] !== sum(bytes)) throw new Error('it arrived changed');
  }
  const [, file] = await ask('GET');
  if (sum(file) !== process.argv[2]) throw new Error('the file came changed');
}
Promise.all([...Array(8).keys()].map(talk)).then(() => { console.log('OK'); agent.destroy(); });
"#;

fn bodies_and_files_over_kept_connections(host: &Host) {
    let port = free_port();
    let served = body(1, 3_000_000);
    host.file("served", &served);
    let node = || host.program("/usr/bin/node").env("UV_USE_IO_URING", "1");
    let server = node().args(["-e", SERVER, &port.to_string()]).start();
    server.wait_for_port(port);
    let witness = host.witness(port);
    let client = ["-e", CLIENT, &port.to_string(), &sha256(&served)];
    assert_eq!(node().args(client).run().text(), "OK\n");
    witness.assert_ring_share(0.5);
    server.assert_running();
    if host.route() == Route::Crosslane {
        see_refusals(host);
    }
}

/// libuv has asked for io_uring, if it is one that does, and has been refused.
fn see_refusals(host: &Host) {
    let version = host
        .plain("/usr/bin/node")
        .args(["-p", "process.versions.uv"])
        .run()
        .text();
    let version = version.trim();
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let first_two = [(); 2].map(|()| numbers.next().unwrap_or(0_u32));
    if first_two < FIRST_WITH_IO_URING {
        return skipped(&format!(
            "libuv {version} asks for no io_uring, so none is refused"
        ));
    }
    let refused = host.stats().count("io_uring_refused");
    assert!(refused > 0, "libuv {version} was refused no io_uring");
}

on_both_routes!(bodies_and_files_over_kept_connections);
