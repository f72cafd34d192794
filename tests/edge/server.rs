//! A real workerd with the built Worker on a storage of its own, as `workerd serve` runs it.

use serde_json::{Value, json};
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A running server. It is killed and its storage deleted when it goes.
pub struct Server {
    child: Option<Child>,
    folder: PathBuf,
    /// What the next start is configured with.
    pub settings: Settings,
    client: Client,
}

/// The variables and secrets of a deployment.
#[derive(Clone)]
pub struct Settings {
    pub shards: u16,
    pub mode: &'static str,
    pub secret: String,
}

/// Who sends requests to a server, also while it is down.
#[derive(Clone)]
pub struct Client {
    agent: ureq::Agent,
    port: u16,
}

impl Deref for Server {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

/// What came back: status, headers, body.
pub struct Reply {
    pub status: u16,
    pub json: Value,
    headers: ureq::http::HeaderMap,
}

static SERVERS: AtomicU32 = AtomicU32::new(0);

impl Server {
    /// Starts a server on new storage.
    pub fn start() -> Server {
        let number = SERVERS.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("poptally-edge-{}-{number}", std::process::id()));
        fs::create_dir_all(folder.join("state")).unwrap();
        let build = std::env::var("POPTALLY_BUILD").unwrap_or_else(|_| "build".into());
        for file in ["index.js", "index_bg.wasm"] {
            let built = Path::new(&build).join(file);
            fs::copy(&built, folder.join(file)).unwrap_or_else(|_| {
                panic!("{} is missing: run `npm run build` first", built.display())
            });
        }
        fs::write(folder.join("cache.js"), include_str!("cache.js")).unwrap();
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(20)))
            .max_idle_connections_per_host(32)
            .build();
        let client = Client { agent: config.into(), port: free_port() };
        let settings = Settings { shards: 1, mode: "development", secret: SECRET.into() };
        let mut server = Server { child: None, folder, settings, client };
        server.restart();
        server
    }

    /// Ends the server as a power failure would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again on the same storage, with another number of shards.
    pub fn restart_with(&mut self, shards: u16) {
        self.settings.shards = shards;
        self.restart();
    }

    /// Starts it again on the same storage.
    pub fn restart(&mut self) {
        self.kill();
        fs::write(self.folder.join("config.capnp"), self.config()).unwrap();
        let log = self.folder.join("log");
        let log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let child = Command::new(workerd())
            .args(["serve", "config.capnp"])
            .current_dir(&self.folder)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("workerd starts (run `npm ci` first)");
        self.child = Some(child);
        let mut last = None;
        for _ in 0..400 {
            match self.send("GET", "/healthz", &[], b"") {
                Some(health) if health.status == 200 => return,
                other => last = other.map(|health| health.json),
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("workerd is not healthy: {last:?}\n{}", self.log());
    }

    /// What workerd printed so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// A client of its own.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    fn config(&self) -> String {
        let namespaces = json!({
            "views": { "kind": "count", "grow_only": true },
            "likes": { "kind": "count" },
            "flights": { "kind": "count" },
            "pages": { "kind": "count", "grow_only": true, "cache": 60 },
            "few": { "kind": "count", "max_keys": 3, "max_step": 10 },
            "huge": { "kind": "count", "max_step": SAFE },
        });
        format!(
            r#"using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [ (name = "main", worker = .main), (name = "cache", worker = .cache),
    (name = "state", disk = (path = "{state}", writable = true)) ],
  sockets = [ (name = "http", address = "127.0.0.1:{port}", http = (cfBlobHeader = "cf-blob"), service = "main") ] );
const main :Workerd.Worker = (
  modules = [ (name = "index.js", esModule = embed "index.js"), (name = "index_bg.wasm", wasm = embed "index_bg.wasm") ],
  compatibilityDate = "2026-10-01",
  durableObjectNamespaces = [
    (className = "Pop", uniqueKey = "pop", enableSql = true), (className = "Hub", uniqueKey = "hub", enableSql = true) ],
  durableObjectStorage = (localDisk = "state"),
  cacheApiOutbound = "cache",
  bindings = [
    (name = "POP", durableObjectNamespace = "Pop"), (name = "HUB", durableObjectNamespace = "Hub"),
    (name = "MODE", text = "{mode}"), (name = "ADMIN_TOKEN", text = "dev"),
    (name = "SECRET", text = "{secret}"), (name = "SHARDS", text = "{shards}"),
    (name = "PUSH_MS", text = "300"), (name = "NAMESPACES", json = {namespaces:?}) ] );
const cache :Workerd.Worker = (
  modules = [ (name = "cache.js", esModule = embed "cache.js") ],
  compatibilityDate = "2026-10-01" );
"#,
            state = self.folder.join("state").display(),
            port = self.client.port,
            mode = self.settings.mode,
            secret = self.settings.secret,
            shards = self.settings.shards,
            namespaces = namespaces.to_string(),
        )
    }
}

impl Client {
    /// Where the server is.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where it listens.
    pub fn address(&self) -> (&'static str, u16) {
        ("127.0.0.1", self.port)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"").expect("the server answers")
    }

    pub fn get_at(&self, pop: &str, path: &str) -> Reply {
        self.send("GET", path, &[("x-poptally-pop", pop)], b"").expect("the server answers")
    }

    /// A step at a location.
    pub fn add(&self, pop: &str, key: &str, by: i64) -> Reply {
        let body = json!({ "by": by }).to_string();
        let headers = [("x-poptally-pop", pop)];
        self.send("POST", &path(key), &headers, body.as_bytes()).expect("the server answers")
    }

    /// An administrator's call.
    pub fn admin(&self, method: &str, key: &str, body: &Value) -> Reply {
        let headers = [("authorization", "Bearer dev")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, &path(key), &headers, body.as_bytes()).expect("the server answers")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[], body.to_string().as_bytes()).expect("the server answers")
    }

    /// Sends a session's counts from a location; any location forwards them to the home.
    pub fn sync(&self, pop: &str, token: &str, counts: &Value) -> Option<Reply> {
        let body = json!({ "token": token, "counts": counts }).to_string();
        self.send("POST", "/v1/sync", &[("x-poptally-pop", pop)], body.as_bytes())
    }

    /// Opens a session at a location; returns its token.
    pub fn session(&self, pop: &str) -> String {
        let reply = self.send("POST", "/v1/session", &[("x-poptally-pop", pop)], b"").unwrap();
        reply.json["token"].as_str().unwrap_or_else(|| panic!("{}", reply.json)).to_owned()
    }

    /// Sends a request; none where no answer came.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Reply> {
        let mut request =
            ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = self.agent.run(request.body(body).unwrap()).ok()?;
        let body = response.body_mut().read_to_vec().ok()?;
        Some(Reply {
            status: response.status().as_u16(),
            json: serde_json::from_slice(&body).unwrap_or(Value::Null),
            headers: response.headers().clone(),
        })
    }

    /// Asserts that all locations come to read `expected`, and that this is the end of it: none of
    /// them holds back anything, and all of them together say the same.
    pub fn agree(&self, pops: &[&str], key: &str, expected: i128) {
        for pop in pops {
            assert_eq!(self.settles(pop, key, expected), expected.to_string(), "{key} at {pop}");
        }
        for pop in pops {
            let detail = self.get_at(pop, &format!("{}?detail&fresh", path(key))).json;
            assert_eq!(detail["exact"], expected.to_string(), "{key} at {pop}: {detail}");
            assert_eq!(detail["unsynced"]["exact"], "0", "{key} at {pop}: {detail}");
            assert_eq!(detail["missing"], json!([]), "{key} at {pop}: {detail}");
            let parts = detail["parts"].as_array().unwrap().iter();
            let sum: i128 =
                parts.map(|part| part["exact"].as_str().unwrap().parse::<i128>().unwrap()).sum();
            assert_eq!(sum, expected, "the Hub's parts of {key}: {detail}");
        }
    }

    /// Reads a counter at a location until it is `expected`; returns what it was last.
    pub fn settles(&self, pop: &str, key: &str, expected: i128) -> String {
        let mut last = String::new();
        for _ in 0..200 {
            last = self.get_at(pop, &path(key)).exact();
            if last == expected.to_string() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        last
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("workerd said:\n{}", self.log());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Reply {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// The exact value as digits, or what stands there instead.
    pub fn exact(&self) -> String {
        self.json["exact"].as_str().map_or_else(|| self.json.to_string(), str::to_owned)
    }

    /// The problem's kind, after checking that it is a whole problem document.
    pub fn problem(&self) -> &str {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.json);
        assert_eq!(self.header("access-control-allow-origin"), "*");
        assert_eq!(self.json["status"], self.status);
        for text in ["title", "detail"] {
            assert!(self.json[text].as_str().is_some_and(|text| text.len() > 10), "{}", self.json);
        }
        self.json["type"].as_str().unwrap().strip_prefix("urn:poptally:problem:").unwrap()
    }
}

/// 2^53 - 1, the largest step that a configuration can allow: it passes through JavaScript.
pub const SAFE: u64 = 9_007_199_254_740_991;

/// The secret that signs this server's tokens.
pub const SECRET: &str = "for-the-tests-only-0123456789abcdef";

/// A key's path: the name is one segment.
pub fn path(key: &str) -> String {
    format!("/v1/{key}")
}

/// The binary that `POPTALLY_WORKERD` names, or the one that `npm ci` installed.
fn workerd() -> PathBuf {
    let platform = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("macos", "aarch64") => "darwin-arm64",
        ("macos", _) => "darwin-64",
        (_, "aarch64") => "linux-arm64",
        _ => "linux-64",
    };
    let binary = std::env::var("POPTALLY_WORKERD")
        .unwrap_or_else(|_| format!("node_modules/@cloudflare/workerd-{platform}/bin/workerd"));
    fs::canonicalize(binary).expect("workerd is installed: run `npm ci` first")
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
