// The prefix tree: one box a run of pages without a branch, as wide as the pages from it on down, deeper downwards.

import { ago, count, h, many, oneLine, percent, put, quote } from "./dom.js";

const ROW = 50;
const ROW_ABOVE = 30;
const GAP = 2;
const LEVELS = 7; // of hits: 0, 1, 2-3, 4-7, 8-15, 16-31, 32 and more

const levelOf = (hits) => (hits < 1 ? 0 : Math.min(LEVELS - 1, 1 + Math.floor(Math.log2(hits))));

export class Icicle {
  constructor({ tree, crumbs, detail, onZoom }) {
    Object.assign(this, { tree, crumbs, detail, onZoom });
    this.boxes = new Map(); // id -> element
    this.nodes = new Map(); // id -> node of the last answer
    this.data = null;
    this.pointed = null;
    this.current = null; // id that the keyboard is at
    this.target = null; // id that was last zoomed to, drawn or still on its way
    tree.addEventListener("keydown", (event) => this.key(event));
    tree.addEventListener("pointerleave", () => this.point(null));
  }

  render(data) {
    this.data = data;
    this.target = data.focus;
    this.nodes = new Map(data.nodes.map((node) => [node.id, { ...node, children: [] }]));
    for (const node of data.above) this.nodes.set(node.id, { ...node, children: [], above: true });
    const tops = [];
    for (const node of this.nodes.values()) {
      if (node.above) continue;
      const parent = node.id === data.focus ? null : this.nodes.get(node.parent);
      if (parent && !parent.above) parent.children.push(node);
      else tops.push(node);
    }
    this.place(tops);
    this.drawCrumbs();
    this.describe();
  }

  place(tops) {
    const seen = new Set();
    let y = 0;
    for (const node of this.data.above) {
      this.draw(this.nodes.get(node.id), 0, 1, y, ROW_ABOVE, seen);
      y += ROW_ABOVE + GAP;
    }
    const total = tops.reduce((sum, node) => sum + node.subtree.pages, 0) || 1;
    const walk = (nodes, x, depth, all) => {
      for (const node of nodes) {
        const width = node.subtree.pages / all;
        this.draw(node, x, width, y + depth * (ROW + GAP), ROW, seen);
        this.depth = Math.max(this.depth, depth + 1);
        walk(node.children, x, depth + 1, all);
        x += width;
      }
    };
    this.depth = 0;
    walk(tops, 0, 0, total);
    for (const [id, box] of this.boxes) {
      if (seen.has(id)) continue;
      box.remove();
      this.boxes.delete(id);
    }
    this.tree.style.setProperty("--height", `${y + this.depth * (ROW + GAP)}px`);
    this.order = [...seen];
    if (!this.boxes.has(this.current)) this.current = this.data.focus ?? this.order[0] ?? null;
    for (const [id, box] of this.boxes) box.tabIndex = id === this.current ? 0 : -1;
  }

  draw(node, x, width, y, height, seen) {
    Object.assign(node, { x, width, y });
    seen.add(node.id);
    let box = this.boxes.get(node.id);
    if (!box) {
      box = h("div", {
        role: "treeitem",
        tabindex: -1,
        on: {
          click: () => this.zoom(node.id),
          focus: () => this.focused(node.id),
          pointerenter: () => this.point(node.id),
        },
      });
      this.boxes.set(node.id, box);
      this.tree.append(box);
    }
    const run = node.more === undefined;
    box.className = `box h${levelOf(node.hits)}${node.below ? " below" : ""}${run ? "" : " more"}${node.above ? " above" : ""}`;
    box.style.setProperty("left", `${x * 100}%`);
    box.style.setProperty("width", `${width * 100}%`);
    box.style.setProperty("top", `${y}px`);
    box.style.setProperty("height", `${height}px`);
    box.setAttribute("aria-label", spoken(node));
    put(box, ...(run ? this.inside(node) : [h("b", {}, `and ${count(node.more)} more`), h("small", {}, many(node.subtree.pages, "page"))]));
  }

  inside(node) {
    const salt = this.data.namespaces[node.namespace]?.salt;
    return [
      h("i", { class: "state" },
        part("live", node.live, node.pages), part("pinned", node.pinned, node.pages)),
      h("b", {}, !node.parent && salt ? h("span", { class: "salt" }, oneLine(salt)) : null, oneLine(node.text)),
      h("small", {},
        node.below ? `${count(node.pages)} on ${node.below}` : many(node.pages, "page"),
        node.hits ? ` · ${many(node.hits, "hit")}` : "",
        node.pinned ? " · pinned" : "",
        node.sessions.length ? ` · ${many(node.sessions.length, "session")}` : ""),
      h("i", { class: "tiers" }, part("host", node.host, node.pages), part("disk", node.disk, node.pages)),
    ];
  }

  // -- moving about

  zoom(id) {
    const node = this.nodes.get(id);
    if (!node) return;
    if (node.more !== undefined) return this.zoom(node.parent);
    this.current = id;
    this.go(id === this.target ? node.parent : id);
  }

  go(id) {
    this.target = id;
    this.onZoom(id);
  }

  key(event) {
    const node = this.nodes.get(this.current);
    if (!node) return;
    const beside = (step) => {
      const row = [...this.nodes.values()].filter((other) => other.y === node.y).sort((a, b) => a.x - b.x);
      return row[row.indexOf(node) + step]?.id;
    };
    const moves = {
      ArrowDown: () => node.children[0]?.id ?? (node.above ? [...this.nodes.values()].find((other) => other.y > node.y)?.id : null),
      ArrowUp: () => node.parent,
      ArrowLeft: () => beside(-1),
      ArrowRight: () => beside(1),
      Home: () => this.order[0],
    };
    if (event.key === "Enter" || event.key === " ") this.zoom(this.current);
    else if (event.key === "Escape") this.go(this.nodes.get(this.target)?.parent ?? null);
    else if (moves[event.key]) this.boxes.get(moves[event.key]())?.focus();
    else return;
    event.preventDefault();
  }

  focused(id) {
    this.current = id;
    for (const [other, box] of this.boxes) box.tabIndex = other === id ? 0 : -1;
    this.point(null);
  }

  point(id) {
    this.pointed = id;
    this.describe();
  }

  drawCrumbs() {
    const { above, focus } = this.data;
    const step = (id, text) => h("button", { type: "button", class: "plain", on: { click: () => this.go(id) } }, text);
    put(this.crumbs, focus === null ? [] : [
      step(null, "all"),
      ...above.map((node) => step(node.id, oneLine(node.text).slice(0, 18) || "…")),
      h("span", { "aria-current": "location" }, oneLine(this.nodes.get(focus)?.text ?? "").slice(0, 24)),
    ]);
  }

  // -- what a box stands for

  describe() {
    const id = this.pointed ?? this.current;
    const node = this.nodes.get(id);
    for (const [other, box] of this.boxes) box.classList.toggle("at", other === id);
    if (!node) return put(this.detail, h("p", { class: "dim" }, "Nothing is cached yet."));
    put(this.detail, node.more === undefined ? this.facts(node) : [
      h("h3", {}, `${many(node.more, "branch")} too small to draw`),
      h("p", {}, `${many(node.subtree.pages, "page")} with ${many(node.subtree.tokens, "token")} in ${many(node.subtree.runs, "run")}.`),
      h("p", { class: "dim" }, "Zoom into the box above to see them."),
    ]);
  }

  facts(node) {
    const size = this.data.page_size;
    const salt = this.data.namespaces[node.namespace]?.salt;
    const rest = node.pages - node.live - node.pinned;
    const state = node.below
      ? `evicted from the device, kept on ${node.below}`
      : [[node.live, "live"], [node.pinned, "pinned"], [rest, "cached"]].filter(([n]) => n > 0).map(([n, name]) => `${count(n)} ${name}`).join(" · ");
    const rows = [
      ["tokens", `${count(node.start)} – ${count(node.start + node.tokens - 1)}`],
      ["pages", `${count(node.pages)} of ${size} tokens`],
      ["state", state],
      ["copies", [node.host && `${count(node.host)} on host`, node.disk && `${count(node.disk)} on disk`].filter(Boolean).join(" · ") || "none below the device"],
      ["hits", `${count(node.hits)} from here on down, ${count(node.ended_here)} ended here`],
      ["with what follows", `${many(node.subtree.pages, "page")} in ${many(node.subtree.runs, "run")}`],
      ["last use", node.last_use ? ago(node.last_use) : "before anybody watched"],
      salt !== null && salt !== undefined ? ["salt", quote(salt)] : null,
      node.sessions.length ? ["sessions", node.sessions.slice(0, 6).map((id) => h("code", { title: id }, `${id.slice(0, 13)}… `)).concat(node.sessions.length > 6 ? `and ${count(node.sessions.length - 6)} more` : [])] : null,
    ].filter(Boolean);
    return [
      h("h3", {}, "Text"),
      h("p", { class: "excerpt" }, quote(node.text), node.end ? [h("span", { class: "dim" }, " … "), quote(node.end)] : null),
      h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    ];
  }
}

const part = (name, value, all) =>
  value ? h("u", { class: name, style: { width: percent(value, all).replace(" ", "") } }) : null;

function spoken(node) {
  if (node.more !== undefined) return `${count(node.more)} more branches, ${many(node.subtree.pages, "page")}`;
  return `${oneLine(node.text).slice(0, 60)}: ${many(node.pages, "page")}, ${many(node.hits, "hit")}` +
    (node.below ? `, only on ${node.below}` : "") + (node.pinned ? ", pinned" : "") + (node.live ? ", in use" : "");
}

export function legend() {
  const key = (name, text) => h("span", {}, h("i", { class: `key ${name}` }), text);
  return [
    h("span", { class: "scale" }, "hits ", ["0", "1", "2", "4", "8", "16", "32+"].map((text, level) => h("i", { class: `key h${level}` }, text))),
    key("live", "in use"), key("pinned", "pinned"), key("host", "copy on host"), key("disk", "copy on disk"),
    key("below", "only below the device"),
    h("span", { class: "dim" }, "width: pages from here on down · click: zoom"),
  ];
}
