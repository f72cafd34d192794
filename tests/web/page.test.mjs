// The dashboard as a person uses it: count in two locations, cut one off, reconnect, agree.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { settles, startBrowser, startServer } from "./server.mjs";

let server;
let browser;
before(async () => {
  [server, browser] = await Promise.all([startServer(), startBrowser()]);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

test("a location that is cut off counts on, and agrees when it is reconnected", async () => {
  const page = await browser.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  await page.goto(`${server.url}/#likes/shown`);
  const card = (name) => page.locator("article").filter({ has: page.getByRole("heading", { name }) });
  const press = (name, button) => card(name).getByRole("button", { name: button }).click();
  await press("LHR", /Count here/);
  await press("SFO", /Count here/);
  // What LHR has not shared when it is cut off would stay unseen, and rightly so.
  assert.equal(await settles(server.url, "likes/shown", 2, "SFO"), "2");
  await page.locator("#total", { hasText: "2" }).waitFor();
  await page.getByText("All 3 locations agree").waitFor();
  await press("LHR", /Cut off/);
  await press("LHR", /Count here/);
  await press("LHR", /Count here/);
  await press("SFO", /Count here/);
  assert.equal(await settles(server.url, "likes/shown", 3, "SFO"), "3");
  await press("LHR", /Reconnect/);
  await page.getByText("All 3 locations agree").waitFor();
  assert.equal(await settles(server.url, "likes/shown", 5, "NRT"), "5");
  assert.deepEqual(errors, []);
  await page.close();
});

test("the page fits a narrow screen and keeps its keyboard focus visible", async () => {
  const page = await browser.newPage({ viewport: { width: 360, height: 800 } });
  await page.goto(`${server.url}/#likes/narrow`);
  await page.getByText("All 3 locations agree").waitFor();
  const wider = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
  assert.equal(wider, false);
  await page.keyboard.press("Tab");
  const outlined = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle !== "none");
  assert.equal(outlined, true);
  await page.close();
});
