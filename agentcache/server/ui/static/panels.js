// Figures of the moment, queues, sessions, and the first steps of whoever has an empty cache.

import { bytes, count, h, left, many, oneLine, percent, put, short, span } from "./dom.js";
import { nameOf } from "./reasons.js";

const tile = (name, value, note, extra) => h("div", { class: "tile" }, h("span", {}, name), h("b", {}, value), extra ?? null, h("small", {}, note));

export function tiles(element, state, share) {
  const { pages, queues } = state;
  const bar = h("i", { class: "states" }, ["live", "pinned", "cached"].map((name) =>
    h("u", { class: name, title: `${name}: ${count(pages[name])}`, style: { width: percent(pages[name], pages.total).replace(" ", "") } })));
  put(element,
    tile("Hit rate", share ?? "–", "of prompt tokens, 5 min"),
    tile("Pages", `${short(pages.total - pages.free)} / ${short(pages.total)}`, `${short(pages.live)} live · ${short(pages.pinned)} pinned · ${short(pages.cached)} cached`, bar),
    tile("Running", count(queues.running.count), queues.running.others ? `${count(queues.running.others)} of other keys` : "sequences in the batch"),
    tile("Waiting", count(queues.waiting.count + queues.preempted.count), queues.preempted.count ? `${count(queues.preempted.count)} of them preempted` : "for their admission"),
    state.tiers.map((tier) => tile(tier.name === "host" ? "Host memory" : tier.name === "disk" ? "Disk" : tier.name,
      short(tier.pages), tier.unit === "pages" ? `pages of ${short(tier.capacity)}` : `pages, ${bytes(tier.used)} of ${bytes(tier.capacity)}`)));
}

// -- queues

function tokens(request) {
  const { prompt_tokens: prompt, cached_tokens: cached, ready_tokens: ready, generated_tokens: generated } = request;
  const all = prompt + Math.max(generated, Math.min(request.max_tokens, prompt));
  const width = (value) => ({ width: `${(100 * value) / all}%` });
  const computed = Math.max(0, Math.min(ready, prompt) - cached);
  return h("i", { class: "tokens", role: "img", "aria-label": `${cached} cached, ${computed} computed, ${prompt - cached - computed} to compute, ${generated} generated` },
    h("u", { class: "cached", style: width(cached) }), h("u", { class: "computed", style: width(computed) }),
    h("u", { class: "todo", style: width(Math.max(0, prompt - cached - computed)) }), h("u", { class: "generated", style: width(generated) }));
}

function queued(request) {
  return h("li", {},
    h("code", {}, `${request.session ?? request.request.slice(0, 10)}${request.index ? ` #${request.index}` : ""}`), tokens(request),
    h("small", {}, `${count(request.prompt_tokens)} prompt · ${count(request.cached_tokens)} cached · ${count(request.generated_tokens)} generated · ${span(request.age_s)}` +
      (request.priority ? ` · priority ${request.priority}` : "") + (request.preemptions ? ` · preempted ${request.preemptions}×` : "")));
}

export function queues(element, facts, all) {
  put(element, ["running", "preempted", "waiting"].map((name) => {
    const { count: n, others, requests } = all[name];
    const unseen = n - others - requests.length;
    return h("div", {}, h("h3", {}, `${name} `, h("span", { class: "dim" }, count(n))),
      n ? null : h("p", { class: "dim" }, "nobody"),
      h("ol", {}, requests.map(queued)),
      unseen > 0 ? h("p", { class: "dim" }, `and ${count(unseen)} more of yours`) : null,
      others ? h("p", { class: "dim" }, `${count(others)} of other keys`) : null);
  }), h("p", { class: "legend" }, [["cached", "cached"], ["computed", "computed"], ["todo", "to compute"], ["generated", "generated"]].map(([key, text]) => h("span", {}, h("i", { class: `key ${key}` }), text))));
  put(facts, "in the scheduler's order");
}

// -- sessions

function turnBars(turns) {
  const most = Math.max(1, ...turns.map((turn) => turn.prompt_tokens));
  return h("i", { class: "turns", "aria-hidden": "true" }, turns.slice(-24).map((turn) =>
    h("u", { style: { height: `${(100 * turn.prompt_tokens) / most}%` }, title: `${count(turn.cached_tokens)} of ${count(turn.prompt_tokens)} tokens cached` },
      h("b", { class: "cached", style: { height: `${(100 * turn.cached_tokens) / Math.max(1, turn.prompt_tokens)}%` } }))));
}

function turnTable(session) {
  const first = session.turn_count - session.turns.length;
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, ["turn", "prompt", "cached", "computed", "completion", "why not more"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, session.turns.map((turn, place) => h("tr", {}, [
      first + place + 1, ...["prompt_tokens", "cached_tokens", "computed_tokens", "completion_tokens"].map((name) => count(turn[name])),
    ].map((value) => h("td", {}, value)), h("td", { class: "text", title: turn.miss?.detail }, nameOf(turn.miss)))))));
}

export class Sessions {
  constructor(element, facts) {
    Object.assign(this, { element, facts });
    this.open = new Set();
  }

  render(data) {
    this.data = data;
    put(this.facts, data.count ? many(data.count, "session") : "");
    if (!data.count) return put(this.element, h("p", { class: "dim" }, "None. POST /v1/sessions begins one: its turns send only what is new."));
    const focused = this.element.contains(document.activeElement) ? document.activeElement.closest("details")?.dataset.id : null;
    put(this.element, data.sessions.map((session) => this.session(session)),
      data.count > data.sessions.length ? h("p", { class: "dim" }, `and ${count(data.count - data.sessions.length)} more`) : null);
    if (focused) this.element.querySelector(`details[data-id="${CSS.escape(focused)}"] summary`)?.focus();
  }

  session(session) {
    const prompt = session.turns.reduce((sum, turn) => sum + turn.prompt_tokens, 0);
    const cached = session.turns.reduce((sum, turn) => sum + turn.cached_tokens, 0);
    return h("details", {
      "data-id": session.id, open: this.open.has(session.id),
      on: { toggle: (event) => this.open[event.target.open ? "add" : "delete"](session.id) },
    },
    h("summary", {},
      h("span", { class: "who" }, h("code", {}, session.id), session.name ? h("bdi", { class: "dim" }, oneLine(session.name).slice(0, 40)) : null),
      turnBars(session.turns),
      h("small", {}, `${many(session.turn_count, "turn")} · ${short(session.tokens)} tokens · ${percent(cached, prompt)} cached`),
      h("span", { class: "marks" },
        session.in_flight ? h("em", { class: "live" }, "generating") : null,
        session.pinned_until ? h("em", { class: "pinned" }, `pinned ${left(session.pinned_until)}`) : null,
        h("em", {}, `ends in ${left(session.expires_at)}`),
        session.parent ? h("em", {}, "fork of ", h("code", {}, session.parent.slice(0, 11))) : null)),
    session.turns.length ? turnTable(session) : h("p", { class: "dim" }, "no turn yet"));
  }
}

// -- first steps

export function start(element, state, key) {
  const auth = key ? ` \\\n  -H 'authorization: Bearer YOUR-KEY'` : "";
  const line = `curl ${location.origin}/v1/chat/completions${auth} \\
  -H 'content-type: application/json' \\
  -d '{"messages": [{"role": "system", "content": "You are a careful engineer."},
                   {"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 64}'`;
  put(element, h("h2", {}, "Nothing is cached yet"),
    h("p", {}, "Send a request, then send it again with another question: the second finds the beginning of the first. This page shows both within a second."),
    h("pre", {}, line),
    h("p", { class: "dim" }, `Serving ${oneLine(state.model)} in pages of ${state.page_size} tokens. What is shorter than a page is kept as a partly filled one.`));
}
