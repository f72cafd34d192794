/** Numbers, times and lists as a person reads them. */

const format = new Intl.NumberFormat();
const signed = new Intl.NumberFormat(undefined, { signDisplay: "exceptZero" });
const list = new Intl.ListFormat("en");

/** A BigInt or a string of digits, in full: a JavaScript number would round above 2^53. */
export const number = (exact) => format.format(BigInt(exact));

/** The same with its sign, as one writes a change. */
export const change = (exact) => signed.format(BigInt(exact));

/** `LHR`, `LHR and SFO`, `LHR, SFO, and NRT` */
export const names = (items) => list.format(items);

/** A span of time in its largest unit. */
export function span(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3_600)} h`;
  return `${Math.floor(seconds / 86_400)} days`;
}

/** How long ago something was. */
export const ago = (ms) => (ms < 1_000 ? "just now" : `${span(ms)} ago`);

/** Writes `text` into an element, if it does not stand there yet. */
export function put(element, text) {
  if (element.textContent !== text) element.replaceChildren(...breakable(text));
}

/** A long number breaks between its groups of digits, if it must. */
function breakable(text) {
  const groups = text.split(/(?<=\p{Nd}\P{Nd})(?=\p{Nd})/u);
  return groups.flatMap((group, at) => (at === 0 ? [group] : [document.createElement("wbr"), group]));
}

/** The same for what is not there when it has nothing to say. */
export function putOrHide(element, text) {
  put(element, text);
  element.hidden = !text;
}

/** Writes a large number: it shrinks until it fits, and lights up when it changes. */
export function putNumber(element, text) {
  if (element.textContent === text) return;
  const first = element.textContent === "–";
  put(element, text);
  element.classList.toggle("is-empty", text === "–");
  element.style.setProperty("--chars", String(text.length));
  if (first || still.matches) return;
  const { color } = getComputedStyle(element);
  const accent = getComputedStyle(element).getPropertyValue("--accent");
  element.animate({ color: [accent, color] }, { duration: 700, easing: "ease-out" });
}

const still = matchMedia("(prefers-reduced-motion: reduce)");
