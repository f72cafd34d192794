// Runs commands as named steps: one line each with its time, their output only when they fail.
import { spawn } from "node:child_process";

/** A failure that needs a sentence, not a stack trace. */
export class Halt extends Error {}

/** Runs `work` under a name and tells how long it took. */
export async function step(name, work) {
  const started = Date.now();
  process.stdout.write(process.stdout.isTTY ? `  ${name} …` : `  ${name} …\n`);
  const result = await work();
  process.stdout.write(`${process.stdout.isTTY ? "\r\x1b[2K" : ""}✓ ${name} (${seconds(started)})\n`);
  return result;
}

/** Runs a command to its end. Shows its last line while it runs, and all of it when it fails. */
export function run(command, args, { env = process.env, cwd, show = false } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { env, cwd, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    const started = Date.now();
    const listen = (chunk) => {
      output += chunk;
      if (show) process.stdout.write(chunk);
      else if (process.stdout.isTTY) process.stdout.write(`\r\x1b[2K  ${lastLine(output)}`);
    };
    child.stdout.on("data", listen);
    child.stderr.on("data", listen);
    const sign = setInterval(() => {
      if (!show && !process.stdout.isTTY) console.log(`    ${seconds(started)}: ${lastLine(output)}`);
    }, 30_000);
    child.on("error", (error) => (clearInterval(sign), reject(error)));
    child.on("close", (code) => {
      clearInterval(sign);
      if (code === 0) return resolve(output);
      if (!show) process.stdout.write(`\n${output.split("\n").slice(-80).join("\n")}\n`);
      reject(new Halt(`\`${[command, ...args].join(" ")}\` failed (exit code ${code}); its output is above.`));
    });
  });
}

/** Runs a script's main function; a `Halt` ends it with its sentence alone. */
export function main(work) {
  work().catch((error) => {
    console.error(error instanceof Halt ? `\n✗ ${error.message}` : error);
    process.exit(1);
  });
}

export function seconds(started) {
  const s = (Date.now() - started) / 1000;
  return s < 90 ? `${s.toFixed(1)} s` : `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
}

function lastLine(output) {
  const line = output.trimEnd().split("\n").at(-1) ?? "";
  return line.trim().slice(0, 100);
}
