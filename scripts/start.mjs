// npm start [-- --port N --state DIR]: sets up, builds, and serves http://localhost:8787.
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { build } from "./build.mjs";
import { root, setup, withRecentNode } from "./setup.mjs";
import { Halt, main } from "./steps.mjs";

main(async () => {
  const { port, state } = options();
  await checkFree(port);
  await withRecentNode();
  const env = await setup();
  await build(env);
  await serve(port, state, env);
});

function options() {
  try {
    const { values } = parseArgs({ options: { port: { type: "string" }, state: { type: "string" } } });
    const port = Number(values.port ?? 8787);
    if (!Number.isInteger(port) || port < 1 || port > 65535) throw new Error(`${values.port} is not a port`);
    return { port, state: resolve(root, values.state ?? ".state") };
  } catch (error) {
    throw new Halt(`${error.message}. Use: npm start -- --port 8787 --state DIR`);
  }
}

function checkFree(port) {
  return new Promise((done, fail) => {
    const probe = createServer();
    probe.once("error", () => fail(new Halt(`Port ${port} is taken: stop what uses it, or choose another with \`npm start -- --port ${port + 1}\`.`)));
    probe.listen(port, "127.0.0.1", () => probe.close(done));
  });
}

/** Only here is a server in development mode, where requests may name and cut locations. */
async function serve(port, state, env) {
  const vars = { MODE: "development", ADMIN_TOKEN: "dev", SECRET: "for-development-only-0123456789abcdef" };
  const args = ["dev", "--local", "--ip", "127.0.0.1", "--port", String(port), "--inspector-port", "0"];
  args.push("--persist-to", state, "--show-interactive-dev-session=false", "--log-level", "warn");
  for (const [name, value] of Object.entries(vars)) args.push("--var", `${name}:${value}`);
  // A group of its own, so that wrangler's children end with it.
  const wrangler = spawn("wrangler", args, { cwd: root, env, stdio: ["ignore", "inherit", "inherit"], detached: true });
  const stop = (signal) => {
    try {
      process.kill(-wrangler.pid, signal);
    } catch {
      // It has ended already.
    }
  };
  const ended = new Promise((done) => wrangler.on("close", done));
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.on(signal, async () => {
      stop("SIGTERM");
      // workerd may wait for hanging requests; it has nothing to lose.
      setTimeout(() => stop("SIGKILL"), 3_000).unref();
      await ended;
      stop("SIGKILL");
      process.exit(0);
    });
  }
  const url = `http://localhost:${port}`;
  const ready = await Promise.race([answers(`${url}/healthz`), ended.then(() => false)]);
  if (!ready) {
    stop("SIGKILL");
    throw new Halt("wrangler dev ended before the server could count; its output is above.");
  }
  console.log(`\n  poptally counts at ${url}\n  administrator's token: dev   stored in: ${state}   stop: Ctrl-C\n`);
  const code = await ended;
  stop("SIGKILL");
  throw new Halt(`wrangler dev ended by itself (exit code ${code}).`);
}

async function answers(url) {
  for (let tries = 0; tries < 240; tries += 1) {
    const answer = await fetch(url).catch(() => undefined);
    if (answer?.ok) return true;
    await new Promise((done) => setTimeout(done, 250));
  }
  return false;
}
