// Asks the server while somebody looks, and draws what has changed.

import { byId, count, h, many, oneLine, put, span } from "./dom.js";
import { HitRate, PagesOverTime } from "./charts.js";
import { Icicle, legend } from "./icicle.js";
import { Sessions, queues, start, tiles } from "./panels.js";
import { Requests } from "./requests.js";

const KEY = "agentcache.key"; // this tab only
const THEME = "agentcache.theme";
const STATE_MS = 1000;
const REST_MS = 2000;
const PATIENCE_MS = 8000;
const LONGEST_WAIT_S = 10;

class Unauthorized extends Error {}

const tags = new Map(); // address -> tag of the answer that was drawn last
let state = null;
let zoomed = null;
let failures = 0;
let woken = () => {};

const icicle = new Icicle({ tree: byId("tree"), crumbs: byId("crumbs"), detail: byId("node"), onZoom: zoom });
const hitRate = new HitRate(byId("rate"), byId("rate-facts"));
const pages = new PagesOverTime(byId("pages"), byId("pages-facts"));
const sessions = new Sessions(byId("sessions"), byId("sessions-facts"));
const requests = new Requests({ list: byId("requests"), detail: byId("request"), facts: byId("requests-facts") });

// -- asking

async function ask(address, draw) {
  const headers = {};
  const key = sessionStorage.getItem(KEY);
  if (key) headers.authorization = `Bearer ${key}`;
  if (tags.has(address)) headers["if-none-match"] = tags.get(address);
  const answer = await fetch(address, { headers, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (answer.status === 304) return;
  const body = await answer.json();
  if (answer.status === 401) throw new Unauthorized();
  if (!answer.ok) throw new Error(body?.error?.message ?? `the server answered ${answer.status}`);
  draw(body);
  tags.set(address, answer.headers.get("etag"));
}

const treeAddress = () => `ui/tree?nodes=${innerWidth < 700 ? 120 : 400}${zoomed ? `&under=${encodeURIComponent(zoomed)}` : ""}`;

const askTree = () => {
  const address = treeAddress();
  return ask(address, (data) => address === treeAddress() && drawTree(data));
};

async function zoom(id) {
  zoomed = id;
  tags.delete(treeAddress());
  try {
    await askTree();
  } catch (error) {
    trouble(error);
  }
}

// -- drawing

function drawState(now) {
  state = now;
  put(byId("model"), h("b", {}, oneLine(now.model)), ` ${now.device} · pages of ${now.page_size} tokens · v${now.version}`);
  hitRate.add(now.history);
  pages.add(now.pages, now.now);
  tiles(byId("tiles"), now, hitRate.share);
  queues(byId("queues"), byId("queues-facts"), now.queues);
}

function drawTree(data) {
  if (zoomed && data.focus === null) zoomed = null; // what was zoomed into has left the cache
  icicle.render(data);
  const { totals } = data;
  const salted = data.namespaces.length > 1 ? `${many(data.namespaces.length, "namespace")} · ` : "";
  put(byId("tree-facts"), `${salted}${many(totals.pages, "page")} in ${many(totals.runs, "run")}` +
    (totals.below ? ` · ${count(totals.below)} only below the device` : "") +
    (totals.others ? ` · ${count(totals.others)} pages of others` : "") + ` · looked at in ${data.engine_ms} ms`);
  const empty = !totals.pages && !totals.below;
  byId("tree-panel").hidden = empty;
  byId("start").hidden = !empty;
  if (empty && state) start(byId("start"), state, state.keyed);
}

function link(kind, text) {
  byId("link").dataset.state = kind;
  byId("link").lastElementChild.textContent = text;
}

function well() {
  failures = 0;
  byId("notice").hidden = true;
  byId("key-form").hidden = true;
  byId("main").hidden = false;
  byId("forget").hidden = !sessionStorage.getItem(KEY);
  if (state.healthy) return link("live", "live");
  link("bad", "not serving");
  notice(`The engine does not serve: ${state.reason || "it is stopping"}.`);
}

function notice(text) {
  byId("notice").hidden = false;
  byId("notice").textContent = text;
}

// Returns how many seconds to wait before the next try; for ever where a key is needed.
function trouble(error) {
  if (error instanceof Unauthorized) {
    const tried = sessionStorage.getItem(KEY) !== null;
    sessionStorage.removeItem(KEY);
    tags.clear();
    byId("main").hidden = true;
    byId("forget").hidden = true;
    byId("notice").hidden = true;
    byId("key-error").textContent = tried ? "The server does not know this key." : "";
    if (byId("key-form").hidden) {
      byId("key-form").hidden = false;
      byId("key").focus();
    }
    link("wait", "needs a key");
    return Infinity;
  }
  failures += 1;
  const wait = Math.min(LONGEST_WAIT_S, 2 ** (failures - 1));
  link("bad", "no connection");
  const said = error instanceof TypeError || error.name === "TimeoutError" ? "the server does not answer" : error.message;
  notice(`Trying again in ${span(wait)}: ${oneLine(said)}. What you see is how it was before.`);
  return wait;
}

// -- going on

const pause = (ms) => new Promise((resolve) => {
  woken = resolve;
  if (Number.isFinite(ms)) setTimeout(resolve, ms);
});

async function forEver() {
  let rest = 0; // when the slower figures are due
  for (;;) {
    if (document.hidden) {
      await pause(Infinity);
      rest = 0;
      continue;
    }
    let wait = STATE_MS;
    try {
      await ask("ui/state", drawState);
      if (Date.now() >= rest) {
        await Promise.all([askTree(), ask("ui/sessions", (data) => sessions.render(data)), ask("ui/requests", (data) => requests.render(data))]);
        rest = Date.now() + REST_MS - STATE_MS / 2;
      }
      well();
    } catch (error) {
      wait = trouble(error) * 1000;
      rest = 0;
    }
    await pause(wait);
  }
}

document.addEventListener("visibilitychange", () => woken());
addEventListener("online", () => woken());

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("key").value.trim();
  if (/[^\x21-\x7e]/.test(key) || !key) {
    byId("key-error").textContent = "A key has letters, digits and signs, and no spaces.";
    return;
  }
  sessionStorage.setItem(KEY, key);
  byId("key").value = "";
  woken();
});

byId("forget").addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  location.reload();
});

const theme = (name) => { if (name) document.documentElement.dataset.theme = name; };
theme(new URLSearchParams(location.search).get("theme") ?? localStorage.getItem(THEME));
byId("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
  theme(dark ? "light" : "dark");
  localStorage.setItem(THEME, document.documentElement.dataset.theme);
});

put(byId("legend"), legend());
forEver();
