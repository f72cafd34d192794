// A server as `npm start` runs it, on a storage of its own, and a real Chromium.
import { chromium } from "playwright-core";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export async function startServer() {
  const state = mkdtempSync(join(tmpdir(), "poptally-web-"));
  const port = await freePort();
  const server = spawn(process.execPath, ["scripts/start.mjs", "--port", String(port), "--state", state]);
  let output = "";
  server.stdout.on("data", (chunk) => (output += chunk));
  server.stderr.on("data", (chunk) => (output += chunk));
  const ended = new Promise((done) => server.on("close", done));
  const url = `http://localhost:${port}`;
  for (let tries = 0; ; tries += 1) {
    if (output.includes("poptally counts at")) break;
    if (tries > 600 || server.exitCode !== null) throw new Error(`the server did not start:\n${output}`);
    await sleep(200);
  }
  const stop = async () => {
    server.kill("SIGTERM");
    await ended;
    rmSync(state, { recursive: true, force: true });
  };
  return { url, stop };
}

export function startBrowser() {
  const quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
  return chromium.launch({ executablePath: process.env.POPTALLY_CHROMIUM ?? "/usr/bin/chromium", args: quiet });
}

/** Reads a counter until it is `expected`; returns what it last was. */
export async function settles(url, key, expected, pop = "LHR") {
  let last;
  for (let tries = 0; tries < 100; tries += 1) {
    const response = await fetch(`${url}/v1/${key}`, { headers: { "x-poptally-pop": pop } });
    last = (await response.json()).exact;
    if (last === String(expected)) break;
    await sleep(100);
  }
  return last;
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function freePort() {
  return new Promise((done) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => done(port));
    });
  });
}
