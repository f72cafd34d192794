/** Calls of the HTTP API. */

/** Why a call has no answer: `kind` as in the API's problem types, or `no-answer`. */
export class Refusal extends Error {
  constructor(kind, detail, { status = 0, retryMs = 0 } = {}) {
    super(detail);
    this.kind = kind;
    this.status = status;
    this.retryMs = retryMs;
  }
}

/** Calls `path` at the location `pop` (the nearest one without). Throws a `Refusal`. */
export async function ask(path, { method = "GET", pop, body } = {}) {
  const headers = new Headers();
  if (pop) headers.set("x-poptally-pop", pop);
  if (body) headers.set("content-type", "application/json");
  let response, text;
  try {
    const signal = AbortSignal.timeout(ANSWER_MS);
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store", signal });
    text = await response.text();
  } catch {
    throw new Refusal("no-answer", "the server does not answer");
  }
  const answer = parse(text);
  if (response.ok && answer) return answer;
  const kind = String(answer?.type ?? "").split(":").at(-1);
  const detail = answer?.detail ?? answer?.title ?? `The server's answer (${response.status}) is not understood.`;
  const retryMs = 1_000 * (Number(response.headers.get("retry-after")) || 0);
  throw new Refusal(kind || "not-understood", detail, { status: response.status, retryMs });
}

/** The path of a counter. The name is one segment, whatever it contains. */
export function pathOf(key) {
  const slash = key.indexOf("/");
  return `/v1/${encodeURIComponent(key.slice(0, slash))}/${encodeURIComponent(key.slice(slash + 1))}`;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** How long an answer may take, in ms. */
const ANSWER_MS = 10_000;
