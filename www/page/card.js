/** One location: what it says, and what one can do to it. */
import { ask, pathOf, Refusal } from "./api.js";
import { ago, change, number, put, putNumber, putOrHide, span } from "./words.js";

export class Card {
  /** What the location said last, and when that came (ms since 1970). */
  reading;
  heardAt = 0;
  /** Why the last reading failed. */
  failure;

  #page;
  #is = {};
  #key;
  #timer;
  #busy = false;
  #again = false;
  #failures = 0;
  #retryAt = 0;

  /** `code` names the location; without one it is the nearest, whatever its name. `page` hears of
   * what happens here. */
  constructor(code, page) {
    this.code = code;
    this.#page = page;
    this.element = document.getElementById("card").content.firstElementChild.cloneNode(true);
    for (const element of this.element.querySelectorAll("[data-is]")) this.#is[element.dataset.is] = element;
    const { up, down, cut, remove } = this.#is;
    up.addEventListener("click", () => this.#count(1));
    down.addEventListener("click", () => this.#count(-1));
    cut.addEventListener("click", () => this.#cut());
    remove.addEventListener("click", () => page.removed(this));
    cut.hidden = remove.hidden = !code;
    this.show();
  }

  get name() {
    return this.code ?? this.reading?.location ?? "Here";
  }

  /** How old the others' part is by now, in ms; none when it never heard of them. */
  get age() {
    const { stale_ms } = this.reading ?? {};
    return stale_ms == null ? undefined : stale_ms + Date.now() - this.heardAt;
  }

  /** Shows another counter from now on. */
  watch(key) {
    this.#key = key;
    this.reading = this.failure = undefined;
    this.#failures = 0;
    put(this.#is.refusal, "");
    this.show();
    this.poll();
  }

  /** Asks nothing any more. */
  stop() {
    this.#key = undefined;
    clearTimeout(this.#timer);
  }

  focus() {
    this.#is.code.focus();
  }

  /** Asks now, and then again and again while somebody looks. */
  async poll() {
    clearTimeout(this.#timer);
    // One question at a time, or an older answer could overtake a newer one.
    this.#again = this.#busy;
    if (this.#busy || !this.#key || document.hidden) return;
    this.#busy = true;
    const key = this.#key;
    try {
      const reading = await ask(`${pathOf(key)}?detail`, { pop: this.code });
      if (key === this.#key) this.#heard(reading);
    } catch (error) {
      if (key === this.#key) this.#missed(error);
    }
    this.#busy = false;
    this.show();
    this.#page.changed();
    if (this.#again) return this.poll();
    // A counter that cannot exist is not asked for again.
    if (document.hidden || WRONG_KEY.has(this.failure?.kind)) return;
    const wait = this.failure ? this.#retryAt - Date.now() : this.#page.pollMs;
    this.#timer = setTimeout(() => this.poll(), wait);
  }

  #heard(reading) {
    this.reading = reading;
    this.heardAt = Date.now();
    this.failure = undefined;
    this.#failures = 0;
  }

  #missed(error) {
    this.failure = error instanceof Refusal ? error : new Refusal("not-understood", String(error));
    const wait = Math.min(RETRY_MS_MAX, RETRY_MS * 2 ** this.#failures++) * (0.75 + Math.random() / 2);
    this.#retryAt = Date.now() + Math.max(wait, this.failure.retryMs);
    if (WRONG_KEY.has(this.failure.kind)) this.#page.wrongKey(this.failure);
  }

  async #count(by) {
    const key = this.#key;
    await this.#act(async () => {
      const { exact } = await ask(pathOf(key), { method: "POST", pop: this.code, body: { by } });
      const sum = exact === null ? "the sum is unknown there" : `${number(exact)} together`;
      this.#page.say(`Counted ${change(by)} at ${this.name}: ${sum}.`);
    }, "Not counted");
  }

  async #cut() {
    const cut = !this.reading?.cut;
    await this.#act(async () => {
      await ask(`/dev/${cut ? "cut" : "heal"}?pop=${this.code}`, { method: "POST" });
      this.#page.say(`${this.name} is ${cut ? "cut off" : "connected again"}.`);
    }, cut ? "Not cut off" : "Not connected");
  }

  /** Does what the person asked for; tells beside the buttons why it was `not` done. */
  async #act(work, not) {
    try {
      await work();
      put(this.#is.refusal, "");
    } catch (error) {
      // Without an answer from all the way down, nobody knows: such a step is not sent again.
      const lost = not === "Not counted" && IN_DOUBT.has(error.kind);
      const text = sentence(`${lost ? "Perhaps not counted" : not}: ${error.message}`);
      put(this.#is.refusal, text);
      this.#page.say(`${this.name}: ${text}`);
      if (error.kind === "grow-only") this.#page.onlyGrows(this.#key);
    }
    this.show();
    await this.poll();
  }

  /** Shows all of it as it is now: ages grow also while nothing is heard. */
  show() {
    const is = this.#is;
    const { reading, failure, name } = this;
    const cut = Boolean(reading?.cut);
    this.element.classList.toggle("is-cut", cut);
    is.mark.hidden = !cut;
    put(is.code, name);
    put(is["cut-verb"], cut ? "Reconnect" : "Cut off");
    put(is["up-name"], ` at ${name}`);
    put(is["down-name"], ` at ${name}`);
    put(is["cut-name"], ` ${name}`);
    put(is["remove-name"], `Remove ${name}`);
    is.up.disabled = is.down.disabled = WRONG_KEY.has(failure?.kind);
    this.#showDown();
    if (reading) this.#showReading(reading);
    else this.#showNothing();
    is.refusal.hidden = !is.refusal.textContent;
    putOrHide(is.notice, failure && !WRONG_KEY.has(failure.kind) ? this.#notice() : "");
  }

  #showReading({ exact, own, others, unsynced }) {
    const is = this.#is;
    putNumber(is.merged, exact === null ? "unknown" : number(exact));
    put(is.own, number(own.exact));
    put(is.others, others ? number(others.exact) : "never heard of");
    put(is.age, others && this.age !== undefined ? ago(this.age) : "");
    is.heard.hidden = !is.age.textContent;
    const waiting = BigInt(unsynced.exact);
    put(is.unsynced, waiting ? change(waiting) : "nothing");
    is["unsynced-row"].classList.toggle("is-waiting", waiting !== 0n);
  }

  #showNothing() {
    const is = this.#is;
    putNumber(is.merged, "–");
    for (const part of [is.own, is.others, is.unsynced]) put(part, "–");
    is.heard.hidden = true;
    is["unsynced-row"].classList.remove("is-waiting");
  }

  #showDown() {
    const { up, down } = this.#is;
    const hide = !this.#key || this.#page.grows(this.#key);
    // The keyboard must not lose its place.
    if (hide && document.activeElement === down) up.focus();
    down.hidden = hide;
  }

  #notice() {
    const wait = this.#retryAt - Date.now();
    return `${sentence(this.failure.message)} ${wait < 1_000 ? "Trying again." : `Trying again in ${span(wait)}.`}`;
  }
}

/** A problem's detail as a sentence of its own. */
export function sentence(detail) {
  const text = detail.charAt(0).toUpperCase() + detail.slice(1);
  return /[.!?)]$/.test(text) ? text : `${text}.`;
}

/** Problems that are the counter's name's, not the location's. */
const WRONG_KEY = new Set(["bad-name", "unknown-namespace"]);
/** Problems after which a step may have been counted or not. */
const IN_DOUBT = new Set(["no-answer", "not-understood", "unreachable"]);
/** The first and the longest pause after a failure, in ms. */
const RETRY_MS = 1_000;
const RETRY_MS_MAX = 30_000;
