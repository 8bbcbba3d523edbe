// The latest requests, and for the one picked: what was cached, where that ended, why, and what to do about it.

import { ago, count, h, many, oneLine, percent, put, quote, span } from "./dom.js";
import { REASONS, nameOf } from "./reasons.js";

// Misses whose detail says more than their code.
const TELLING = new Set(["evicted", "expired", "model", "template"]);

export class Requests {
  constructor({ list, detail, facts }) {
    Object.assign(this, { list, detail, facts });
    this.picked = null;
    this.following = true; // shows the newest until one is picked
    this.requests = [];
    list.addEventListener("keydown", (event) => this.key(event));
  }

  render(data) {
    this.requests = data.requests;
    const known = this.requests.some((request) => request.id === this.picked);
    if (!known || this.following) this.picked = this.requests[0]?.id ?? null;
    put(this.facts, this.requests.length ? `the latest ${count(this.requests.length)}` : "");
    const focused = this.list.contains(document.activeElement);
    put(this.list, this.requests.map((request) => this.row(request)));
    if (!this.requests.length) put(this.list, h("p", { class: "dim" }, "None since the server began."));
    if (focused) this.rowOf(this.picked)?.focus();
    this.describe();
  }

  row(request) {
    const share = request.prompt_tokens ? request.cached_tokens / request.prompt_tokens : 0;
    const chosen = request.id === this.picked;
    return h("div", {
      role: "option", class: "row", "data-id": request.id, tabindex: chosen ? 0 : -1, "aria-selected": chosen,
      on: { click: () => this.pick(request.id) },
    },
    h("time", {}, new Date(request.started * 1000).toLocaleTimeString("en-GB")),
    h("span", { class: "route" }, request.route.replace(/^\/v1\//, ""), request.session ? h("code", {}, ` ${request.session.slice(0, 11)}`) : null),
    h("i", { class: "tokens", "aria-hidden": "true" }, h("u", { class: "cached", style: { width: `${share * 100}%` } }), h("u", { class: "computed", style: { width: `${(1 - share) * 100}%` } })),
    h("span", { class: "number" }, `${failed(request) ? "–" : count(request.cached_tokens)} / ${count(request.prompt_tokens)}`),
    h("em", { class: failed(request) ? "bad" : `code ${request.miss?.code ?? "full"}` }, failed(request) ? `${request.status} ${request.error ?? ""}` : nameOf(request.miss)));
  }

  rowOf(id) {
    return [...this.list.children].find((row) => row.dataset.id === id);
  }

  pick(id) {
    this.picked = id;
    this.following = id === this.requests[0]?.id;
    for (const row of this.list.querySelectorAll(".row")) {
      const chosen = row.dataset.id === id;
      row.setAttribute("aria-selected", chosen);
      row.tabIndex = chosen ? 0 : -1;
    }
    this.rowOf(id)?.focus();
    this.describe();
  }

  key(event) {
    const place = this.requests.findIndex((request) => request.id === this.picked);
    const to = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: this.requests.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    if (this.requests[to]) this.pick(this.requests[to].id);
  }

  describe() {
    const request = this.requests.find((one) => one.id === this.picked);
    if (!request) return put(this.detail, h("p", { class: "dim" }, "Each request is listed when it is over; pick one to see where its prompt stopped being cached."));
    if (this.drawn === request.id && this.detail.childElementCount) return;
    this.drawn = request.id;
    put(this.detail, headline(request), bar(request), reason(request), findings(request), facts(request));
  }
}

const failed = (request) => request.error !== null || request.status >= 400;

function headline(request) {
  if (failed(request)) return h("h3", { class: "bad" }, `It failed: ${request.status} ${request.error ?? ""}`);
  const computed = request.prompt_tokens - request.cached_tokens;
  return h("h3", {}, `${count(request.cached_tokens)} of ${many(request.prompt_tokens, "prompt token")} were cached (${percent(request.cached_tokens, request.prompt_tokens)}), ${count(computed)} had to be computed`);
}

//   [ cached ................ | computed ........ ]
//                             ▲ at_token: where and why
function bar(request) {
  const { prompt_tokens: prompt, cached_tokens: cached, miss } = request;
  if (!prompt) return null;
  const at = miss ? Math.min(100, (100 * miss.at_token) / prompt) : null;
  return h("div", { class: "where" },
    h("i", { class: "tokens", role: "img", "aria-label": `${cached} tokens cached, then ${prompt - cached} computed` },
      h("u", { class: "cached", style: { width: `${(100 * cached) / prompt}%` } }, cached / prompt > 0.14 ? "cached" : ""),
      h("u", { class: "computed", style: { width: `${(100 * (prompt - cached)) / prompt}%` } }, cached / prompt < 0.84 ? "computed" : "")),
    at === null ? null : h("span", { class: `mark${at > 60 ? " right" : ""}`, style: { left: `${at}%` } }, `token ${count(miss.at_token)}`));
}

function place(miss) {
  if (miss.path === "prompt") return "in the prompt";
  if (miss.message_index === null || miss.message_index === undefined) return miss.path ? ["in ", h("code", {}, miss.path)] : "behind the last message, where the reply begins";
  return ["in message ", h("b", {}, count(miss.message_index + 1)), " (", h("code", {}, miss.path ?? `messages[${miss.message_index}]`), ")"];
}

function reason(request) {
  const { miss } = request;
  if (failed(request) && !miss) return null;
  if (!miss) return h("p", { class: "why" }, "All of it was cached. Only the last token was run again: its logits are what the reply begins with.");
  const known = REASONS[miss.code];
  return h("div", { class: "why" },
    h("p", {}, h("em", { class: `code ${miss.code}` }, nameOf(miss)), " ", known?.why(miss) ?? oneLine(miss.detail ?? "")),
    h("p", {}, "It stopped at token ", h("b", {}, count(miss.at_token)), ", ", place(miss), "."),
    texts(miss),
    known ? h("p", { class: "todo-note" }, h("b", {}, "What to do: "), known.todo(miss)) : null,
    miss.detail && TELLING.has(miss.code) ? h("p", { class: "dim" }, `The server says: ${oneLine(miss.detail)}.`) : null);
}

// Both texts begin where the cache ended; what they still have in common is dimmed, what differs stands out.
function texts(miss) {
  const { was, now } = miss;
  if (!was && !now) return null;
  let same = 0;
  while (was && now && same < Math.min(was.length, now.length) && was[same] === now[same]) same++;
  const line = (name, text) => text === null || text === undefined ? null : [h("dt", {}, name), h("dd", {}, same ? h("span", { class: "dim" }, quote(text.slice(0, same))) : null, quote(text.slice(same), was ? "differs" : ""), "…")];
  return h("dl", { class: "texts" }, line("the cache has", was), line(was ? "this prompt has" : "goes on with", now));
}

function findings(request) {
  return request.findings.map((finding) => h("p", { class: "finding" }, h("b", {}, `${finding.code} ${finding.name}`), ` ${finding.message ?? ""} `, finding.help ? h("span", { class: "dim" }, finding.help) : null));
}

function facts(request) {
  const rows = [
    ["route", h("code", {}, request.route + (request.streamed ? " · streamed" : ""))],
    ["request", h("code", {}, request.id)],
    request.session ? ["session", h("code", {}, request.session)] : null,
    ["began", `${ago(request.started)} · took ${span(request.total_s)}${request.first_token_s === null ? "" : `, first token after ${span(request.first_token_s)}`}`],
    ["generated", `${many(request.completion_tokens, "token")}${request.finish_reasons.length ? ` · ended by ${[...new Set(request.finish_reasons)].join(", ")}` : ""}`],
    ["positions run", count(request.computed_tokens)],
  ].filter(Boolean);
  return h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}
