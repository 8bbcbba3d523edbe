// Elements made from text that nobody trusts: everything goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) element.addEventListener(event, call);
    else if (name === "style") for (const [property, set] of Object.entries(value)) element.style.setProperty(property, set);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);
export const put = (element, ...children) => {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
};

const named = (character) => `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;

// What would be invisible, or would turn the text around it, is shown by name.
export function visible(text) {
  return String(text)
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, named)
    .replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, named);
}

export const oneLine = (text) => visible(text).replace(/\n/g, "⏎").replace(/\s+/g, " ");
export const quote = (text, name = "") => h("bdi", { class: `quote ${name}` }, visible(text));

const whole = new Intl.NumberFormat("en");
export const count = (value) => whole.format(value);
export const many = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : /(s|ch)$/.test(noun) ? "es" : "s"}`;
export const percent = (part, all) => (all ? `${((100 * part) / all).toFixed(part && part < all ? 1 : 0)} %` : "–");

export function short(value) {
  if (value < 10_000) return count(value);
  return value < 1_000_000 ? `${(value / 1000).toFixed(value < 100_000 ? 1 : 0)}k` : `${(value / 1e6).toFixed(1)}M`;
}

export function span(seconds) {
  if (seconds < 0.001) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 100) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} d`;
}

export const ago = (unix) => `${span(Math.max(0, Date.now() / 1000 - unix))} ago`;
export const left = (unix) => span(Math.max(0, unix - Date.now() / 1000));

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${value.toFixed(unit && value < 100 ? 1 : 0)} ${units[unit]}`;
}
