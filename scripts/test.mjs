// npm test [-- NAME …]: sets up, then runs every test, or only the steps whose name has NAME in it.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { build } from "./build.mjs";
import { root, setup, withRecentNode } from "./setup.mjs";
import { Halt, main, run, seconds, step } from "./steps.mjs";

main(async () => {
  await withRecentNode();
  const env = await setup();
  Object.assign(env, await browser(env));
  const wanted = process.argv.slice(2);
  const results = [];
  for (const [name, ...commands] of steps(env)) {
    if (wanted.length > 0 && !wanted.some((part) => name.includes(part))) continue;
    console.log(`\n── ${name}`);
    const started = Date.now();
    let ok = true;
    for (const command of commands) {
      const work = typeof command === "function" ? command() : run(command[0], command.slice(1), { cwd: root, env, show: true });
      ok = await work.then(
        () => true,
        (error) => (console.error(error instanceof Halt ? error.message : error), false),
      );
      if (!ok) break;
    }
    results.push({ name, ok, time: seconds(started) });
  }
  console.log("\n" + results.map(({ name, ok, time }) => `${ok ? "✓" : "✗"} ${name.padEnd(44)} ${time}`).join("\n"));
  const failed = results.filter(({ ok }) => !ok).length;
  console.log(`\n${results.length - failed} passed, ${failed} failed`);
  process.exitCode = failed === 0 ? 0 : 1;
});

function steps(env) {
  const wasm = ["--target", "wasm32-unknown-unknown", "--features"];
  const strict = ["--", "-D", "warnings"];
  const pack = ["wasm-pack", "test", "--mode", "no-install"];
  const chrome = ["--headless", "--chrome", "--chromedriver", env.CHROMEDRIVER];
  const face = ["--", "--features", "browser"];
  return [
    ["format", ["cargo", "fmt", "--check"]],
    ["lint the core and the tests", ["cargo", "clippy", "--all-targets", ...strict]],
    ["lint the edge", ["cargo", "clippy", ...wasm, "edge", ...strict]],
    ["lint the browser face", ["cargo", "clippy", "--lib", "--tests", ...wasm, "browser", ...strict]],
    ["the core knows no world", ["cargo", "rustc", "--lib", "--crate-type", "rlib", "--", "--cfg", "pure"]],
    ["core: laws, bytes, simulator", ["cargo", "test", "--profile", "bench", "--lib", "--test", "laws", "--test", "bytes", "--test", "river", "--test", "session", "--test", "sim"], ["cargo", "test", "--doc"]],
    ["build", () => build(env)],
    ["edge on real workerd", ["cargo", "test", "--profile", "bench", "--test", "edge"]],
    ["wasm in Node", [...pack, "--node", ...face]],
    ["wasm in Chromium", [...pack, ...chrome, ...face]],
    ["client and page in Chromium", [process.execPath, "--test", "tests/web/*.test.mjs"]],
  ];
}

/** Finds a Chromium and its driver, or installs them. */
async function browser(env) {
  const found = () => {
    const which = (names) => names.map((name) => spawnSync("which", [name], { encoding: "utf8", env }).stdout.trim()).find(Boolean);
    const mac = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome";
    const chromium = which(["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]) ?? (existsSync(mac) ? mac : undefined);
    const driver = which(["chromedriver"]);
    return chromium && driver ? { POPTALLY_CHROMIUM: chromium, CHROMEDRIVER: driver } : undefined;
  };
  const present = found();
  if (present) return present;
  if (existsSync("/usr/bin/apt-get") && process.getuid?.() === 0) {
    await step("install Chromium and its driver (once)", async () => {
      const quiet = { env: { ...env, DEBIAN_FRONTEND: "noninteractive" } };
      await run("apt-get", ["update", "-q"], quiet);
      await run("apt-get", ["install", "-y", "-q", "--no-install-recommends", "chromium", "chromium-driver"], quiet);
    });
    const installed = found();
    if (installed) return installed;
  }
  throw new Halt("the tests need Chromium and chromedriver of the same version: install both (on Debian `apt-get install chromium chromium-driver`) and run this again.");
}
