// The npm client in a real Chromium against a real server: at once, offline, exactly once.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { settles, sleep, startBrowser, startServer } from "./server.mjs";

let server;
let browser;
before(async () => {
  [server, browser] = await Promise.all([startServer(), startBrowser()]);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Opens a page that holds one counter as `window.counter`. */
async function open(context, key) {
  const page = await context.newPage();
  // A plain answer of the same origin: nothing of the dashboard runs beside the client.
  await page.goto(`${server.url}/healthz`);
  await connect(page, key);
  return page;
}

async function connect(page, key) {
  await page.evaluate(async (key) => {
    const { connect } = await import("/client.js");
    window.problems = [];
    window.client = connect(location.origin, { pollMs: 300, onProblem: (problem) => window.problems.push(problem.kind) });
    window.counter = window.client.counter(key);
    window.counter.subscribe(() => {});
  }, key);
}

const increment = (page, by = 1) => page.evaluate((by) => window.counter.increment(by).local, by);
const shown = (page) => page.evaluate(() => String(window.counter.exact));
const pending = (page) => page.evaluate(() => String(window.counter.pending));
const flush = (page) => page.evaluate(() => window.counter.flush());

async function shows(page, expected) {
  for (let tries = 0; tries < 100 && (await shown(page)) !== String(expected); tries += 1) await sleep(100);
  assert.equal(await shown(page), String(expected));
}

test("a click shows at once, is confirmed, and is counted once", async () => {
  const context = await browser.newContext();
  const page = await open(context, "likes/click");
  assert.equal(await increment(page), 1);
  assert.equal(await pending(page), "1");
  await page.evaluate(() => window.counter.increment(2).confirmed);
  assert.equal(await pending(page), "0");
  assert.equal(await settles(server.url, "likes/click", 3, "SFO"), "3");
  await shows(page, 3);
  await context.close();
});

test("a snapshot is one object until something changes", async () => {
  const context = await browser.newContext();
  const page = await open(context, "likes/snapshot");
  const [same, changed, frozen] = await page.evaluate(() => {
    const first = window.counter.getSnapshot();
    const same = first === window.counter.getSnapshot();
    window.counter.increment();
    return [same, first !== window.counter.getSnapshot(), Object.isFrozen(first)];
  });
  assert.deepEqual([same, changed, frozen], [true, true, true]);
  await context.close();
});

test("what is clicked offline survives a reload and is counted once", async () => {
  const context = await browser.newContext();
  const page = await open(context, "likes/offline");
  await shows(page, 0);
  // The server is out of reach; the page itself is not.
  await context.route("**/v1/**", (route) => route.abort());
  for (let clicks = 0; clicks < 5; clicks += 1) await increment(page);
  assert.equal(await shown(page), "5");
  await sleep(600);
  await page.goto(`${server.url}/healthz`);
  await connect(page, "likes/offline");
  await shows(page, 5);
  await increment(page);
  await context.unroute("**/v1/**");
  await flush(page);
  assert.equal(await settles(server.url, "likes/offline", 6), "6");
  await shows(page, 6);
  await sleep(800);
  assert.equal(await shown(page), "6", "no later reading counts them again");
  await context.close();
});

test("lost answers are sent again and counted once", async () => {
  const context = await browser.newContext();
  const page = await open(context, "likes/lost");
  await shows(page, 0);
  let lost = 0;
  await context.route("**/v1/sync", async (route) => {
    const response = await route.fetch();
    lost += 1;
    // It was counted, and the page does not hear of it.
    if (lost <= 3) return route.abort();
    return route.fulfill({ response });
  });
  for (let clicks = 0; clicks < 7; clicks += 1) {
    await increment(page);
    assert.equal(await shown(page), String(clicks + 1), "its own clicks show exactly once all the time");
    await sleep(150);
  }
  await flush(page);
  assert.ok(lost > 3);
  assert.equal(await settles(server.url, "likes/lost", 7), "7");
  await shows(page, 7);
  await context.close();
});

test("a page that closes between sending and hearing leaves nothing double", async () => {
  const context = await browser.newContext();
  const page = await open(context, "likes/closed");
  await shows(page, 0);
  await increment(page);
  await flush(page);
  await context.route("**/v1/sync", async (route) => {
    await route.fetch();
    return route.abort();
  });
  await increment(page, 10);
  await sleep(600);
  await page.close();
  await context.unroute("**/v1/sync");
  const next = await open(context, "likes/closed");
  await shows(next, 11);
  await flush(next);
  assert.equal(await settles(server.url, "likes/closed", 11), "11");
  await sleep(800);
  assert.equal(await shown(next), "11");
  await context.close();
});

test("two tabs of one browser each count their own", async () => {
  const context = await browser.newContext();
  const [one, two] = [await open(context, "likes/tabs"), await open(context, "likes/tabs")];
  for (let clicks = 0; clicks < 4; clicks += 1) await Promise.all([increment(one), increment(two, 10)]);
  await Promise.all([flush(one), flush(two)]);
  assert.equal(await settles(server.url, "likes/tabs", 44), "44");
  await shows(one, 44);
  await shows(two, 44);
  await context.close();
});

test("a refused step is taken back and reported", async () => {
  const context = await browser.newContext();
  const page = await open(context, "views/refused");
  await shows(page, 0);
  const kind = await page.evaluate(() => window.counter.decrement().confirmed.catch((error) => error.kind));
  assert.equal(kind, "grow-only");
  await shows(page, 0);
  assert.deepEqual(await page.evaluate(() => window.problems), ["grow-only"]);
  await context.close();
});

test("bad names and steps are refused at the call", async () => {
  const context = await browser.newContext();
  const page = await open(context, "likes/bad");
  const messages = await page.evaluate(() => {
    const message = (work) => {
      try {
        work();
      } catch (error) {
        return error.message;
      }
    };
    return [() => window.client.counter("likes"), () => window.counter.increment(1.5), () => window.counter.increment(0)].map(message);
  });
  assert.match(messages[0], /namespace\/name/);
  assert.match(messages[1], /whole number/);
  assert.match(messages[2], /not 0/);
  await context.close();
});

test("numbers beyond 2^53 are exact", async () => {
  const headers = { authorization: "Bearer dev" };
  await fetch(`${server.url}/v1/likes/big`, { method: "PUT", headers, body: '{"value":"9007199254740993"}' });
  const context = await browser.newContext();
  const page = await open(context, "likes/big");
  await shows(page, "9007199254740993");
  await increment(page, 2);
  assert.equal(await shown(page), "9007199254740995");
  await context.close();
});
