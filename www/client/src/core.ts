/** The Rust core, compiled on first use. */
import bytes from "../wasm/poptally_bg.wasm";
import { initSync, Tally } from "../wasm/poptally.js";

export type { Tally };

let ready = false;

/** Begins a page's ledger. Throws a clear error where WebAssembly is missing or forbidden. */
export function tally(pollMs: number): Tally {
  boot();
  return new Tally(random(), pollMs);
}

/** Throws where a key is not `namespace/name` as the server takes it. */
export function checkKey(key: string): void {
  boot();
  Tally.check(key);
}

function boot(): void {
  if (ready) return;
  if (typeof WebAssembly === "undefined") {
    throw new Error("poptally needs WebAssembly, which this browser has switched off");
  }
  try {
    initSync({ module: bytes });
  } catch (cause) {
    const hint = "poptally could not start its WebAssembly; a Content-Security-Policy needs 'wasm-unsafe-eval'";
    throw new Error(hint, { cause });
  }
  ready = true;
}

/** 64 random bits. */
export function random(): bigint {
  return crypto.getRandomValues(new BigUint64Array(1))[0] ?? 0n;
}
