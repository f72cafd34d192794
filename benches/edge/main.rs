//! Increments per second through real workerd: ours beside the platform's documented counter, in
//! one process, in turns. `npm run bench`; `--seconds N` and `--rounds N` change how long.
//!
//! The machine is shared and noisy: what to compare is the ratio within a round, and its range.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 64;

/// Something that counts: whose it is, with which request, and how much one request counts.
struct System {
    name: &'static str,
    /// Its socket in [`CONFIG`].
    socket: usize,
    path: &'static str,
    by: u64,
    /// Where its value can be read, to check it at the end.
    counts: &'static str,
}

const SYSTEMS: [System; 5] = [
    System {
        name: "poptally, single",
        socket: OURS,
        path: "/v1/likes/single",
        by: 1,
        counts: "\"exact\":\"",
    },
    System { name: "documented, single", socket: PEER, path: "/", by: 1, counts: "\"value\":" },
    System {
        name: "poptally, 100 at once",
        socket: OURS,
        path: "/v1/likes/batch",
        by: 100,
        counts: "\"exact\":\"",
    },
    System {
        name: "documented, 100 at once",
        socket: PEER,
        path: "/",
        by: 100,
        counts: "\"value\":",
    },
    // What one request to an object costs when it stores nothing: no counter can be faster.
    System {
        name: "JavaScript, nothing stored",
        socket: PEER,
        path: "/nothing",
        by: 1,
        counts: "\"value\":",
    },
];

const OURS: usize = 0;
const PEER: usize = 1;

struct Round {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

fn main() {
    let option = |name: &str, default: u64| {
        let args: Vec<String> = std::env::args().collect();
        let at = args.iter().position(|arg| arg == name);
        at.and_then(|at| args.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let (seconds, rounds) = (option("--seconds", 3), option("--rounds", 5));
    let server = Server::start();
    let mut results: [Vec<Round>; SYSTEMS.len()] = Default::default();
    let mut sent = [0; SYSTEMS.len()];
    for round in 0..=rounds {
        for (at, system) in SYSTEMS.iter().enumerate() {
            let (measured, requests) = load(&server, system, Duration::from_secs(seconds));
            sent[at] += requests * system.by;
            // The first round only warms up.
            if round > 0 {
                results[at].push(measured);
            }
        }
        println!("round {round} of {rounds}");
    }
    check(&server, &sent);
    println!(
        "\n{CONNECTIONS} connections, one counter, median of {rounds} rounds of {seconds} s (range)\n"
    );
    println!("{:<26}{:>34}{:>10}{:>10}", "", "increments/s", "p50 ms", "p99 ms");
    for (system, rounds) in SYSTEMS.iter().zip(&results) {
        let rate = spread(rounds.iter().map(|round| round.per_second));
        let p50 = middle(rounds.iter().map(|round| round.p50_ms));
        let p99 = middle(rounds.iter().map(|round| round.p99_ms));
        println!("{:<26}{rate:>34}{p50:>10.1}{p99:>10.1}", system.name);
    }
    for (one, other) in [(0, 1), (2, 3), (2, 1), (4, 1)] {
        let pairs = results[one].iter().zip(&results[other]);
        let ratios = pairs.map(|(one, other)| one.per_second / other.per_second);
        println!("{} ÷ {}: {}", SYSTEMS[one].name, SYSTEMS[other].name, spread(ratios));
    }
}

/// Sends as fast as every connection is answered, for a time. Returns how many were answered.
fn load(server: &Server, system: &System, time: Duration) -> (Round, u64) {
    let latencies: Mutex<Vec<f64>> = Mutex::default();
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut line = Line::open(server.ports[system.socket]);
                let mut own = Vec::new();
                while started.elapsed() < time {
                    let sent = Instant::now();
                    line.add(system.path, system.by);
                    own.push(sent.elapsed().as_secs_f64() * 1_000.0);
                }
                latencies.lock().unwrap().extend(own);
            });
        }
    });
    let elapsed = started.elapsed().as_secs_f64();
    let mut latencies = latencies.into_inner().unwrap();
    latencies.sort_by(f64::total_cmp);
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    let per_second = latencies.len() as f64 * system.by as f64 / elapsed;
    (Round { per_second, p50_ms: at(0.5), p99_ms: at(0.99) }, latencies.len() as u64)
}

/// Every answered increment is there, and no other.
fn check(server: &Server, sent: &[u64; SYSTEMS.len()]) {
    let value = |system: &System, more: u64| {
        let answer = Line::open(server.ports[system.socket]).add(system.path, more);
        let digits = answer.split(system.counts).nth(1).unwrap_or_default();
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse::<u64>().unwrap() - more
    };
    assert_eq!(value(&SYSTEMS[0], 1), sent[0]);
    assert_eq!(value(&SYSTEMS[2], 1), sent[2]);
    assert_eq!(value(&SYSTEMS[1], 1), sent[1] + sent[3]);
    println!("all counts are exact");
}

/// A connection that is kept.
struct Line(BufReader<TcpStream>);

impl Line {
    fn open(port: u16) -> Line {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Line(BufReader::new(stream))
    }

    fn add(&mut self, path: &str, by: u64) -> String {
        let body = format!("{{\"by\":{by}}}");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.0.get_mut().write_all((head + &body).as_bytes()).unwrap();
        let (mut line, mut length, mut status) = (String::new(), 0, String::new());
        loop {
            line.clear();
            self.0.read_line(&mut line).unwrap();
            if status.is_empty() {
                status.clone_from(&line);
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        assert!(status.contains(" 200 "), "{status} {body}");
        body
    }
}

/// One workerd that serves both.
struct Server {
    child: Child,
    folder: PathBuf,
    ports: [u16; 2],
}

impl Server {
    fn start() -> Server {
        let folder = std::env::temp_dir().join(format!("poptally-bench-{}", std::process::id()));
        fs::create_dir_all(folder.join("state")).unwrap();
        for file in ["build/index.js", "build/index_bg.wasm", "benches/edge/peer.js"] {
            let name = file.rsplit('/').next().unwrap();
            fs::copy(file, folder.join(name))
                .unwrap_or_else(|_| panic!("{file} is missing: run `npm run build`"));
        }
        let ports = free_ports();
        let config = CONFIG
            .replace("/STATE", &folder.join("state").to_string_lossy())
            .replace("OURS", &ports[OURS].to_string())
            .replace("PEER", &ports[PEER].to_string());
        fs::write(folder.join("config.capnp"), config).unwrap();
        let workerd = glob_workerd().expect("workerd is installed: run `npm ci`");
        let child = Command::new(workerd)
            .args(["serve", "config.capnp"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { child, folder, ports };
        for _ in 0..200 {
            thread::sleep(Duration::from_millis(50));
            if ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()) {
                return server;
            }
        }
        panic!("workerd did not start");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Two ports that nobody listens on; both are held until both are known.
fn free_ports() -> [u16; 2] {
    let sockets = [0; 2].map(|any| TcpListener::bind(("127.0.0.1", any)).unwrap());
    sockets.map(|socket| socket.local_addr().unwrap().port())
}

fn glob_workerd() -> Option<PathBuf> {
    let packages = fs::read_dir("node_modules/@cloudflare").ok()?.flatten();
    let binary = |entry: fs::DirEntry| fs::canonicalize(entry.path().join("bin/workerd")).ok();
    packages
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("workerd-"))
        .find_map(binary)
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let values = sorted(values);
    values[values.len() / 2]
}

fn spread(values: impl Iterator<Item = f64>) -> String {
    let values = sorted(values);
    let show =
        |value: f64| if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    let (low, mid, high) = (values[0], values[values.len() / 2], values[values.len() - 1]);
    format!("{} ({} to {})", show(mid), show(low), show(high))
}

const CONFIG: &str = r#"using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [ (name = "main", worker = .main), (name = "peer", worker = .peer),
               (name = "state", disk = (path = "/STATE", writable = true)) ],
  sockets = [ (name = "main", address = "127.0.0.1:OURS", http = (), service = "main"),
              (name = "peer", address = "127.0.0.1:PEER", http = (), service = "peer") ] );
const main :Workerd.Worker = (
  modules = [ (name = "index.js", esModule = embed "index.js"), (name = "index_bg.wasm", wasm = embed "index_bg.wasm") ],
  compatibilityDate = "2026-10-01",
  durableObjectNamespaces = [
    (className = "Pop", uniqueKey = "pop", enableSql = true), (className = "Hub", uniqueKey = "hub", enableSql = true) ],
  durableObjectStorage = (localDisk = "state"),
  bindings = [
    (name = "POP", durableObjectNamespace = "Pop"), (name = "HUB", durableObjectNamespace = "Hub"),
    (name = "SECRET", text = "for-the-bench-only-0123456789abcdef"),
    (name = "NAMESPACES", json = "{\"likes\":{\"kind\":\"count\"}}") ] );
const peer :Workerd.Worker = (
  modules = [ (name = "peer.js", esModule = embed "peer.js") ],
  compatibilityDate = "2026-10-01",
  durableObjectNamespaces = [ (className = "Counter", uniqueKey = "peer", enableSql = true) ],
  durableObjectStorage = (localDisk = "state"),
  bindings = [ (name = "COUNTER", durableObjectNamespace = "Counter") ] );
"#;
