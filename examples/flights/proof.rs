//! Counts real flights at the locations where they begin, over a line that loses replies, and
//! compares every counter with the file.

use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What to do.
pub struct Plan {
    /// The server.
    pub url: String,
    /// How many rows of the file; all of them where it has fewer.
    pub rows: usize,
    /// How many workers send at once.
    pub threads: usize,
    /// `origin,destination,count`, with a head line.
    pub csv: String,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            url: "http://localhost:8787".into(),
            rows: usize::MAX,
            threads: 8,
            csv: "node_modules/vega-datasets/data/flights-airport.csv".into(),
        }
    }
}

/// What came of it.
pub struct Report {
    pub rows: usize,
    pub flights: u64,
    pub origins: usize,
    pub counters: usize,
    /// Counters that differ from the file, with what the last place read that saw it.
    pub different: BTreeMap<String, String>,
    pub requests: u64,
    pub thrown_away: u64,
    /// Requests that had been sent before.
    pub repeats: u64,
    pub counting: Duration,
    pub converging: Duration,
    /// Platform operations by name, where the server tells.
    pub operations: BTreeMap<String, u64>,
}

struct Row {
    number: usize,
    origin: String,
    key: String,
    count: u64,
}

/// Does it; `progress` hears of rows done and rows in all.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(usize, usize)) -> Result<Report, String> {
    let rows = read(plan)?;
    let mut expected: BTreeMap<String, i128> = BTreeMap::new();
    let mut origins: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    let (all, flights) = (rows.len(), rows.iter().map(|row| row.count).sum());
    for row in rows {
        *expected.entry(row.key.clone()).or_default() += i128::from(row.count);
        origins.entry(row.origin.clone()).or_default().push(row);
    }
    let line = Line::new(&plan.url);
    let operations = line.operations();
    let places: Vec<String> = origins.keys().cloned().collect();
    // The server may hold flights of an earlier run.
    let before = line.values(&places[0], expected.keys())?;

    let started = Instant::now();
    let (work, done) = (Mutex::new(origins.into_iter()), AtomicU64::new(0));
    let failed: Mutex<Option<String>> = Mutex::new(None);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.threads)
            .map(|_| {
                scope.spawn(|| {
                    while failed.lock().unwrap().is_none() {
                        let Some((origin, rows)) = work.lock().unwrap().next() else { return };
                        if let Err(error) = count_origin(&line, &origin, &rows, &places, &done) {
                            *failed.lock().unwrap() = Some(error);
                        }
                    }
                })
            })
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            progress(done.load(Ordering::Relaxed) as usize, all);
            thread::sleep(Duration::from_millis(100));
        }
    });
    progress(all, all);
    if let Some(error) = failed.into_inner().unwrap() {
        return Err(error);
    }
    let counting = started.elapsed();

    let converged = Instant::now();
    let mut different = BTreeMap::new();
    // Three locations that know nothing of each other must all read the same.
    for place in [0, places.len() / 2, places.len() - 1].map(|at| &places[at]) {
        different.extend(converge(&line, place, &expected, &before)?);
    }
    let converging = converged.elapsed();
    let now = line.operations();
    let operations = now.into_iter().map(|(name, count)| {
        let before = operations.get(&name).copied().unwrap_or(0);
        (name, count - before)
    });
    Ok(Report {
        rows: all,
        flights,
        origins: places.len(),
        counters: expected.len(),
        different,
        requests: line.requests.load(Ordering::Relaxed),
        thrown_away: line.thrown_away.load(Ordering::Relaxed),
        repeats: line.repeats.load(Ordering::Relaxed),
        counting,
        converging,
        operations: operations.collect(),
    })
}

fn read(plan: &Plan) -> Result<Vec<Row>, String> {
    let text = fs::read_to_string(&plan.csv).map_err(|error| {
        format!("{}: {error}; run `npm ci` first, or name it: --csv PATH", plan.csv)
    })?;
    let row = |(number, line): (usize, &str)| {
        let mut cells = line.split(',');
        let (origin, destination) = (cells.next()?.to_owned(), cells.next()?);
        let count = cells.next()?.trim().parse().ok()?;
        Some(Row { number, origin, key: format!("flights/{destination}"), count })
    };
    let lines = text.lines().skip(1).enumerate().take(plan.rows);
    lines.map(|line| row(line).ok_or_else(|| format!("not a row: {}", line.1))).collect()
}

/// Counts the flights of one origin: most through a session, every seventh by itself.
fn count_origin(
    line: &Line,
    origin: &str,
    rows: &[Row],
    places: &[String],
    done: &AtomicU64,
) -> Result<(), String> {
    let token = line.open(origin)?;
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    let mut late = Vec::new();
    for row in rows {
        let elsewhere = &places[(row.number * 31 + 7) % places.len()];
        let message = if row.number % 7 == 0 {
            let headers =
                vec![("idempotency-key".to_owned(), format!("{}-{}", line.run, row.number))];
            Message::new(format!("/v1/{}", row.key), json!({ "by": row.count }), headers)
        } else {
            let sum = counted.entry(&row.key).or_default();
            *sum += row.count;
            // All that this session ever counted of the key: however often it comes, it is once.
            let body = json!({ "token": token, "counts": { row.key.as_str(): { "p": *sum } } });
            Message::new("/v1/sync".into(), body, Vec::new())
        };
        if row.number % 5 == 0 {
            // The reply is thrown away: was it counted? Nobody here knows, so it is sent again.
            line.throw_away(origin, &message);
            match row.number % 4 {
                0 => late.push((message, origin)),
                1 => late.push((message, elsewhere)),
                2 => {
                    line.throw_away(origin, &message);
                    line.deliver(elsewhere, &message)?;
                }
                _ => line.deliver(origin, &message)?,
            }
        } else {
            line.deliver(origin, &message)?;
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    // What is late comes in another order, behind messages that were sent after it.
    for (message, place) in late.iter().rev() {
        line.deliver(place, message)?;
    }
    Ok(())
}

/// Reads at a place until every counter is right; returns those that stay wrong.
fn converge(
    line: &Line,
    place: &str,
    expected: &BTreeMap<String, i128>,
    before: &BTreeMap<String, i128>,
) -> Result<BTreeMap<String, String>, String> {
    let mut different = BTreeMap::new();
    for _ in 0..240 {
        let now = line.values(place, expected.keys())?;
        different = expected
            .iter()
            .filter(|(key, count)| now[*key] - before[*key] != **count)
            .map(|(key, count)| {
                (key.clone(), format!("{} of {count} at {place}", now[key] - before[key]))
            })
            .collect();
        if different.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(250));
    }
    Ok(different)
}

struct Message {
    path: String,
    body: Value,
    headers: Vec<(String, String)>,
    /// It was sent before.
    sent: Cell<bool>,
}

impl Message {
    fn new(path: String, body: Value, headers: Vec<(String, String)>) -> Message {
        Message { path, body, headers, sent: Cell::new(false) }
    }
}

/// The way to the server.
struct Line {
    agent: ureq::Agent,
    url: String,
    /// Names this run's idempotency keys.
    run: String,
    requests: AtomicU64,
    thrown_away: AtomicU64,
    repeats: AtomicU64,
}

impl Line {
    fn new(url: &str) -> Line {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            .max_idle_connections_per_host(32)
            .build();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Line {
            agent: config.into(),
            url: url.trim_end_matches('/').into(),
            run: format!("{:x}", now.unwrap_or_default().as_nanos()),
            requests: AtomicU64::new(0),
            thrown_away: AtomicU64::new(0),
            repeats: AtomicU64::new(0),
        }
    }

    fn send(
        &self,
        place: &str,
        path: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> Option<(u16, Value)> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut request =
            self.agent.post(format!("{}{path}", self.url)).header("x-poptally-pop", place);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut response = request.send(body).ok()?;
        let text = response.body_mut().read_to_string().ok()?;
        Some((response.status().as_u16(), serde_json::from_str(&text).ok()?))
    }

    fn throw_away(&self, place: &str, message: &Message) {
        self.note(message);
        self.thrown_away.fetch_add(1, Ordering::Relaxed);
        let _ =
            self.send(place, &message.path, &message.headers, message.body.to_string().as_bytes());
    }

    /// Sends until it is answered.
    fn deliver(&self, place: &str, message: &Message) -> Result<(), String> {
        self.note(message);
        self.ask(place, &message.path, &message.headers, &message.body).map(|_| ())
    }

    fn note(&self, message: &Message) {
        self.repeats.fetch_add(message.sent.replace(true).into(), Ordering::Relaxed);
    }

    fn ask(
        &self,
        place: &str,
        path: &str,
        headers: &[(String, String)],
        body: &Value,
    ) -> Result<Value, String> {
        let mut last = String::new();
        for attempt in 0..12 {
            match self.send(place, path, headers, body.to_string().as_bytes()) {
                Some((200, reply)) => return Ok(reply),
                Some((status, reply)) if status < 500 => return Err(format!("{path}: {reply}")),
                Some((_, reply)) => last = reply.to_string(),
                None => last = "no answer".into(),
            }
            self.repeats.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(20 << attempt.min(7)));
        }
        Err(format!("{}{path} at {place}: {last}", self.url))
    }

    fn open(&self, place: &str) -> Result<String, String> {
        let opened = self.ask(place, "/v1/session", &[], &json!({}))?;
        opened["token"].as_str().map(str::to_owned).ok_or_else(|| format!("no token: {opened}"))
    }

    fn values<'k>(
        &self,
        place: &str,
        keys: impl Iterator<Item = &'k String>,
    ) -> Result<BTreeMap<String, i128>, String> {
        let keys: Vec<&String> = keys.collect();
        let mut values = BTreeMap::new();
        for batch in keys.chunks(100) {
            let read = self.ask(place, "/v1/read", &[], &json!({ "keys": batch }))?;
            for item in read["items"].as_array().into_iter().flatten() {
                let value = item["exact"].as_str().and_then(|digits| digits.parse().ok());
                let value = value.ok_or_else(|| format!("no value: {item}"))?;
                values.insert(item["key"].as_str().unwrap_or_default().to_owned(), value);
            }
        }
        Ok(values)
    }

    /// The server's counts of platform operations; nothing where it does not tell.
    fn operations(&self) -> BTreeMap<String, u64> {
        let told = self.agent.get(format!("{}/dev/ops", self.url)).call();
        let text = told.ok().and_then(|mut response| response.body_mut().read_to_string().ok());
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }
}
