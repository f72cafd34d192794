/** The page: which counter, which locations, their sum, and one's own clicks. */
import { ask, pathOf } from "./api.js";
import { Card, sentence } from "./card.js";
import { change, names, number, put, putNumber, putOrHide, span } from "./words.js";

const $ = (id) => document.getElementById(id);

/** What the cards need to know of the page. */
const page = { pollMs: 1_000, changed: showTotal, removed, say, grows, onlyGrows, wrongKey };

let key = "";
let cards = [];
/** Whether the server is in development mode: only there one can choose and cut off locations. */
let development = false;
/** Whether the server refuses the counter's name. */
let wrong = false;

// The address holds all of the page's state: #likes/hello?at=LHR,SFO

function readAddress() {
  const [path, query] = location.hash.slice(1).split("?", 2);
  const at = new URLSearchParams(query).get("at");
  const codes = at?.split(",").map((code) => code.toUpperCase()).filter((code) => CODE.test(code));
  const key = unescape(path);
  return {
    key: key.includes("/") ? key : "likes/hello",
    codes: codes && [...new Set(codes)].slice(0, CARDS_MAX),
  };
}

function writeAddress() {
  const codes = cards.map((card) => card.code).join(",");
  const at = development && codes !== CODES.join(",") ? `?at=${codes}` : "";
  history.replaceState(null, "", `#${escape(key)}${at}`);
}

function escape(key) {
  return key.split("/").map(encodeURIComponent).join("/");
}

function unescape(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/** Shows what the address says. */
function follow() {
  const asked = readAddress();
  if (development && asked.codes) setCards(asked.codes);
  if (asked.key !== key) setKey(asked.key);
  writeAddress();
  showTotal();
}

function setKey(next) {
  key = next;
  wrong = false;
  $("key").value = key;
  $("key").removeAttribute("aria-invalid");
  putOrHide($("key-refusal"), "");
  const path = `${pathOf(key)}?detail`;
  $("json").href = path;
  put($("json"), `GET ${path}`);
  for (const card of cards) card.watch(key);
  showYou();
}

$("choose").addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = escape($("key").value.trim());
});

/** A name that the server refuses is told once, beside the field, not on every card. */
function wrongKey(refusal) {
  wrong = true;
  $("key").setAttribute("aria-invalid", "true");
  putOrHide($("key-refusal"), sentence(refusal.message));
  say($("key-refusal").textContent);
  showYou();
}

// Locations

function setCards(codes) {
  for (const card of cards.filter((card) => !codes.includes(card.code))) drop(card);
  for (const code of codes) {
    if (!cards.some((card) => card.code === code)) append(new Card(code, page));
  }
}

function append(card) {
  cards.push(card);
  $("cards").append(card.element);
  if (key) card.watch(key);
}

function drop(card) {
  card.stop();
  card.element.remove();
  cards = cards.filter((other) => other !== card);
}

function removed(card) {
  const at = cards.indexOf(card);
  drop(card);
  writeAddress();
  showTotal();
  say(`${card.name} is no longer shown. It goes on counting.`);
  const next = cards[at] ?? cards.at(-1);
  if (next) next.focus();
  else $("code").focus();
}

$("add").addEventListener("submit", (event) => {
  event.preventDefault();
  const code = $("code").value.trim().toUpperCase();
  const refusal = cannotAdd(code);
  putOrHide($("add-refusal"), refusal);
  say(refusal || `${code} is added.`);
  if (refusal) return;
  append(new Card(code, page));
  $("code").value = "";
  writeAddress();
  showTotal();
});

function cannotAdd(code) {
  if (!CODE.test(code)) return "A location is 2 to 8 letters and digits, such as AMS.";
  if (cards.some((card) => card.code === code)) return `${code} is shown already.`;
  return cards.length >= CARDS_MAX ? `The page shows ${CARDS_MAX} locations at most; remove one first.` : "";
}

/** Whether a counter's namespace refuses steps down. */
function grows(key) {
  return growing.has(key.split("/", 1)[0]);
}

/** Learns it from a refusal. */
function onlyGrows(key) {
  growing.add(key.split("/", 1)[0]);
  for (const card of cards) card.show();
  showYou();
}

/** Namespaces that only grow: what the development configuration declares, and what was learned. */
const growing = new Set(["views", "pages"]);

// The sum

function showTotal() {
  const best = freshest();
  putNumber($("total"), best ? number(best.reading.exact) : "–");
  put($("agreement"), agreement(best));
  $("agreement").classList.toggle("is-agreed", agreed());
  putOrHide($("elsewhere"), elsewhere(best));
  showParts(best?.reading.parts ?? []);
  document.title = best ? `${number(best.reading.exact)} · ${key} · poptally` : "poptally";
}

/** The card that knows most: the Hub's newest version, and on top of it most of its own counts.
 * By age alone the sum would jump back and forth between a location that has counted and another
 * that has not heard of it. A location that is cut off or silent is the last resort. */
function freshest() {
  const able = cards.filter((card) => card.reading && card.reading.exact !== null);
  const well = able.filter((card) => !lags(card));
  const size = (card) => Math.abs(card.reading.unsynced.value);
  const order = (a, b) =>
    b.reading.version - a.reading.version || size(b) - size(a) || a.age - b.age;
  return (well.length > 0 ? well : able).sort(order)[0];
}

function lags(card) {
  return Boolean(card.reading?.cut || card.failure || card.age === undefined || card.age > page.pollMs + LAG_MS);
}

function agreed() {
  const same = new Set(cards.map((card) => card.reading?.exact));
  return cards.length > 1 && !cards.some(lags) && same.size === 1;
}

function agreement(best) {
  if (cards.length === 0) return development ? "No location is shown. Add one below." : "Asking…";
  if (wrong) return "There is no such counter.";
  if (cards.every((card) => card.failure)) return best ? "No answer. This is the last that was heard." : "No answer.";
  if (cards.some((card) => !card.reading && !card.failure)) return "Asking…";
  const lost = cards.filter(lags);
  if (lost.length > 0) return lost.map(lag).join(" ");
  if (cards.length === 1) return `As ${cards[0].name} knows it.`;
  if (!agreed()) return "Merging: not all have heard of all counts yet.";
  return cards.length === 2 ? "Both locations agree." : `All ${cards.length} locations agree.`;
}

function lag(card) {
  if (card.failure) return `${card.name} does not answer.`;
  const cut = card.reading.cut ? "is cut off and " : "";
  if (card.age === undefined) return `${card.name} ${cut}has never heard of the others.`;
  if (card.age < 1_000) return `${card.name} is cut off.`;
  return `${card.name} ${cut}has not heard of the others for ${span(card.age)}.`;
}

/** What locations that are cut off have counted and the sum does not contain. */
function elsewhere(best) {
  const missing = cards.filter((card) => card !== best && lags(card) && BigInt(card.reading?.unsynced.exact ?? 0));
  const parts = missing.map((card) => `${change(card.reading.unsynced.exact)} at ${card.name}`);
  return parts.length > 0 ? `Not in it yet: ${names(parts)}.` : "";
}

/** What the Hub has from each location. */
function showParts(parts) {
  const sums = new Map();
  for (const { location, exact } of parts) sums.set(location, (sums.get(location) ?? 0n) + BigInt(exact));
  const size = (sum) => (sum < 0n ? -sum : sum);
  const order = [...sums].sort(([a, x], [b, y]) => Number(size(y) - size(x)) || (a < b ? -1 : 1));
  const called = (location) => (location === "hub" ? "Hub" : location);
  const shown = order.slice(0, PARTS_MAX).map(([location, sum]) => [called(location), number(sum)]);
  if (order.length > PARTS_MAX) shown.push(["and", `${order.length - PARTS_MAX} more`]);
  const text = shown.flat().join(" ");
  $("parts").hidden = shown.length === 0;
  if ($("parts").dataset.text === text) return;
  $("parts").dataset.text = text;
  $("parts").replaceChildren(...shown.map(([location, sum]) => {
    const item = document.createElement("li");
    const name = document.createElement("span");
    name.textContent = location;
    item.append(name, ` ${sum}`);
    return item;
  }));
}

// One's own clicks

let client;
let counter;
let unsubscribe;
/** The key of `counter`, or of the one that could not be. */
let youKey = "";
/** The counter's last snapshot. */
let clicks;
/** Where one's own clicks are counted. */
let here = "";

async function startYou() {
  try {
    // Loaded on its own: the rest of the page does without it.
    const { connect } = await import("/client.js");
    client = connect(location.origin, { onProblem: refuse });
    showYou();
  } catch (error) {
    put($("you-status"), `The client could not be loaded: ${error.message}`);
  }
}

function showYou() {
  if ($("you-down") === document.activeElement && grows(key)) $("you-up").focus();
  $("you-down").hidden = grows(key);
  if (client && youKey !== key) listen();
  $("you-up").disabled = $("you-down").disabled = !counter || wrong;
}

function listen() {
  unsubscribe?.();
  youKey = key;
  counter = clicks = undefined;
  putOrHide($("you-refusal"), "");
  try {
    counter = client.counter(key);
    unsubscribe = counter.subscribe(showClicks);
  } catch (error) {
    putNumber($("you-value"), "–");
    put($("you-pending"), "");
    put($("you-status"), sentence(error.message));
  }
}

function showClicks(snapshot) {
  clicks = snapshot;
  const { exact, pending, status, known } = snapshot;
  putNumber($("you-value"), known || pending ? number(exact) : "–");
  put($("you-pending"), pending ? waiting(pending) : known ? "All confirmed" : "");
  $("you-pending").classList.toggle("is-waiting", pending !== 0n);
  const where = here ? ` Your clicks are counted at ${here}.` : "";
  put($("you-status"), (known || status !== "idle" ? STATUS[status] : "Not read yet.") + where);
}

const waiting = (pending) => `${number(pending)} waiting to be confirmed`;

const STATUS = {
  idle: "Up to date.",
  syncing: "Sending.",
  offline: "You are offline. Clicks are kept on this device and sent when you are back.",
  error: "The server does not answer. Clicks are kept on this device and sent again.",
};

function click(by) {
  putOrHide($("you-refusal"), "");
  try {
    const { confirmed } = by > 0 ? counter.increment() : counter.decrement();
    confirmed.catch((error) => refuse({ kind: error.kind, key: error.key, detail: error.message }));
    const rest = counter.pending ? `, ${waiting(counter.pending)}` : "";
    say(`${change(by)}: ${number(counter.exact)}${rest}.`);
  } catch (error) {
    refuse({ kind: error.kind, key, detail: error.message });
  }
}

/** A click that was refused, or that can never be known. */
function refuse({ kind, key: of, detail }) {
  if (of === key) putOrHide($("you-refusal"), sentence(detail || kind));
  say(sentence(detail || kind));
  if (kind === "grow-only") onlyGrows(of);
}

$("you-up").addEventListener("click", () => click(1));
$("you-down").addEventListener("click", () => click(-1));

// Start

/** Tells screen readers; a burst of clicks is told once. */
function say(text) {
  clearTimeout(say.timer);
  say.timer = setTimeout(() => put($("said"), text), SAY_MS);
}

/** Learns how the server runs. A path of development only tells it, and changes nothing. */
async function isDevelopment() {
  for (let wait = 1_000; ; wait = Math.min(2 * wait, 30_000)) {
    try {
      await ask("/dev/ops");
      return true;
    } catch (error) {
      if (error.status >= 400 && error.status < 500) return false;
      put($("agreement"), `${sentence(error.message)} Trying again.`);
    }
    await new Promise((done) => setTimeout(done, wait));
  }
}

async function start() {
  setKey(readAddress().key);
  void startYou();
  development = await isDevelopment();
  if (development) {
    $("add").hidden = false;
    put($("about-locations"), "Cut one off: it goes on counting. Reconnect it: its counts are merged.");
    setCards(readAddress().codes ?? CODES);
  } else {
    // Every reading wakes the Hub, and here that is billed.
    page.pollMs = 5_000;
    put($("locations-title"), "Your location");
    const why = "This is the location nearest to you. Choosing and cutting off locations is for a development server.";
    put($("about-locations"), why);
    append(new Card(undefined, page));
  }
  follow();
  addEventListener("hashchange", follow);
  addEventListener("online", wake);
  document.addEventListener("visibilitychange", wake);
  wake();
  const { location: nearest } = await ask(`${pathOf(key)}?detail`).catch(() => ({}));
  here = nearest ?? "";
  if (clicks) showClicks(clicks);
}

let clock;

/** Runs while somebody looks. */
function wake() {
  clearInterval(clock);
  if (document.hidden) return;
  for (const card of cards) card.poll();
  clock = setInterval(() => {
    for (const card of cards) card.show();
    showTotal();
  }, 500);
}

/** The locations that one starts with. */
const CODES = ["LHR", "SFO", "NRT"];
const CODE = /^[A-Z0-9]{2,8}$/;
/** Every card asks once a second. */
const CARDS_MAX = 12;
const PARTS_MAX = 8;
/** From when a location counts as one that lags, in ms: several pushes were missed. */
const LAG_MS = 4_000;
const SAY_MS = 1_000;

void start();
