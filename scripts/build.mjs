// Builds the two modules: the Worker (build/) and the browser's client (www/client/dist/), and
// lays out what the Worker serves (www/public/). Does nothing when nothing changed.
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { environment, fingerprint, root, setup, withRecentNode } from "./setup.mjs";
import { Halt, main, run, step } from "./steps.mjs";

/** What the browser's wasm and its glue may weigh, gzipped, in bytes. */
const BROWSER_BYTES_MAX = 25_000;

export async function build(env = environment()) {
  const rust = ["src", "Cargo.toml", "Cargo.lock", "scripts/build.mjs"];
  await unlessFresh("build/.poptally", rust, () =>
    step("build the Worker's module", () =>
      run("worker-build", ["--release", "--features", "edge"], { cwd: root, env }),
    ),
  );
  await unlessFresh("www/client/dist/.poptally", [...rust, "www", "package-lock.json"], async () => {
    await step("build the browser's module", () => browser(env));
    await step("check and bundle the client", () => client(env));
    layOut();
  });
}

async function browser(env) {
  const cargo = ["build", "--profile", "browser", "--target", "wasm32-unknown-unknown", "--features", "browser,lean"];
  await run("cargo", cargo, { cwd: root, env });
  const out = join(root, "www/client/wasm");
  const target = process.env.CARGO_TARGET_DIR ?? join(root, "target");
  const wasm = join(target, "wasm32-unknown-unknown/browser/poptally.wasm");
  await run("wasm-bindgen", ["--target", "web", "--out-dir", out, wasm], { cwd: root, env });
  const features = ["bulk-memory", "nontrapping-float-to-int", "sign-ext", "mutable-globals", "reference-types", "multivalue"];
  const file = join(out, "poptally_bg.wasm");
  const optimise = ["-Oz", "--strip-debug", "--strip-producers", ...features.map((name) => `--enable-${name}`)];
  await run("wasm-opt", [...optimise, file, "-o", file], { cwd: root, env });
}

async function client(env) {
  const at = (path) => join(root, "www/client", path);
  await run("tsc", ["-p", root], { cwd: root, env });
  const bundle = ["--bundle", "--minify", "--format=esm", "--target=es2022", "--loader:.wasm=binary", "--legal-comments=none"];
  await run("esbuild", [at("src/index.ts"), ...bundle, `--outfile=${at("dist/index.js")}`], { cwd: root, env });
  if (readFileSync(at("dist/index.js"), "utf8").includes("import.meta")) {
    throw new Halt("the client's bundle contains import.meta, which many bundlers refuse.");
  }
  const glue = (await run("esbuild", [at("wasm/poptally.js"), "--minify", "--format=esm"], { cwd: root, env })).trim();
  const size = (bytes) => gzipSync(bytes, { level: 9 }).length;
  const [wasm, js] = [size(readFileSync(at("wasm/poptally_bg.wasm"))), size(glue)];
  const entry = size(readFileSync(at("dist/index.js")));
  console.log(`  browser entry, gzipped: wasm ${wasm} + glue ${js} = ${wasm + js} bytes (limit ${BROWSER_BYTES_MAX}); with the client, wasm inlined: ${entry}`);
  if (wasm + js > BROWSER_BYTES_MAX) throw new Halt("the browser entry is over its limit.");
}

function layOut() {
  const out = join(root, "www/public");
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  cpSync(join(root, "www/page"), out, { recursive: true });
  cpSync(join(root, "www/client/dist/index.js"), join(out, "client.js"));
}

async function unlessFresh(stamp, sources, work) {
  const file = join(root, stamp);
  const wanted = fingerprint(sources);
  if (existsSync(file) && readFileSync(file, "utf8") === wanted) return;
  await work();
  writeFileSync(file, wanted);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  main(async () => {
    await withRecentNode();
    await build(await setup());
  });
}
