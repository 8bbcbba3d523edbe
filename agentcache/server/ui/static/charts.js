// Two charts over time: of tokens that were cached, and of pages by state.

import { count, h, percent, put, s, short } from "./dom.js";

const KEPT_BUCKETS = 720;
const SHOWN_BUCKETS = 60;
const KEPT_SAMPLES = 300;
const HEIGHT = 190;
export const STATES = ["live", "pinned", "cached", "free"];

const widthOf = (chart) => Math.max(300, chart.clientWidth || 600);
const label = (x, y, text, anchor = "start") => s("text", { x, y, "text-anchor": anchor }, text);

// Intervals as the server counts them, kept here for longer than the server does.
export class HitRate {
  constructor(chart, facts) {
    Object.assign(this, { chart, facts });
    this.buckets = new Map();
  }

  add(history) {
    const first = history.from / history.interval_s;
    history.buckets.forEach((bucket, place) => this.buckets.set(first + place, bucket));
    const last = first + history.buckets.length - 1;
    for (const place of this.buckets.keys()) if (place <= last - KEPT_BUCKETS) this.buckets.delete(place);
    this.draw(last, history.interval_s);
  }

  draw(last, interval) {
    const shown = Array.from({ length: SHOWN_BUCKETS }, (_, place) => this.buckets.get(last - SHOWN_BUCKETS + 1 + place) ?? [0, 0, 0]);
    const [requests, prompt, cached] = shown.reduce((sums, bucket) => sums.map((sum, i) => sum + bucket[i]), [0, 0, 0]);
    const width = widthOf(this.chart);
    const most = Math.max(1, ...shown.map((bucket) => bucket[1]));
    const step = (width - 40) / SHOWN_BUCKETS;
    const top = 16, high = 62, base = 168, bars = 66;
    const x = (place) => 36 + place * step;
    const points = shown.flatMap(([, all, found], place) => (all ? [[x(place) + step / 2, top + high - (high * found) / all, found / all]] : []));
    put(this.chart, s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `Hit rate ${percent(cached, prompt)} over five minutes` },
      [0, 0.5, 1].map((share) => [
        s("line", { class: "grid", x1: 36, x2: width - 4, y1: top + high * (1 - share), y2: top + high * (1 - share) }),
        label(31, top + high * (1 - share) + 4, `${share * 100} %`, "end"),
      ]),
      points.length > 1 ? s("polyline", { class: "rate", points: points.map(([px, py]) => `${px},${py}`).join(" ") }) : null,
      points.map(([px, py, share]) => s("circle", { class: "rate", cx: px, cy: py, r: 2.6 }, s("title", {}, `${(share * 100).toFixed(1)} % cached`))),
      s("line", { class: "grid", x1: 36, x2: width - 4, y1: base, y2: base }),
      label(31, base - bars + 8, short(most), "end"), label(31, base, "0", "end"),
      shown.map(([n, all, found], place) => all ? s("g", {},
        s("title", {}, `${count(n)} requests: ${count(found)} of ${count(all)} prompt tokens cached`),
        s("rect", { class: "computed", x: x(place) + 0.6, width: step - 1.2, y: base - (bars * all) / most, height: (bars * (all - found)) / most }),
        s("rect", { class: "cached", x: x(place) + 0.6, width: step - 1.2, y: base - (bars * found) / most, height: (bars * found) / most })) : null),
      label(36, 185, `${(SHOWN_BUCKETS * interval) / 60} min ago`), label(width - 4, 185, "now", "end")),
    h("p", { class: "legend" }, h("span", {}, h("i", { class: "key rate" }), "share of prompt tokens that was cached"),
      h("span", {}, h("i", { class: "key cached" }), "cached tokens"), h("span", {}, h("i", { class: "key computed" }), "computed tokens"),
      h("span", { class: "dim" }, `each ${interval} s`)));
    put(this.facts, requests ? `${percent(cached, prompt)} of ${short(prompt)} prompt tokens in ${count(requests)} requests, last 5 min` : "no requests in the last 5 min");
    this.share = requests ? percent(cached, prompt) : "–";
  }
}

export class PagesOverTime {
  constructor(chart, facts) {
    Object.assign(this, { chart, facts });
    this.samples = [];
  }

  add(pages, now) {
    this.samples.push({ now, ...pages });
    if (this.samples.length > KEPT_SAMPLES) this.samples.shift();
    this.draw(pages);
  }

  draw(pages) {
    const width = widthOf(this.chart);
    const top = 14, base = 168, high = base - top;
    const last = this.samples.at(-1).now;
    const shown = 300;
    const x = (now) => width - 4 - ((last - now) / shown) * (width - 40);
    const recent = this.samples.filter((sample) => last - sample.now <= shown);
    const drawn = recent.length > 1 ? recent : [{ ...recent[0], now: last - 4 }, recent[0]];
    const areas = [];
    const below = drawn.map(() => 0);
    for (const state of STATES.slice(0, 3)) {
      const lower = drawn.map((sample, i) => [x(sample.now), base - (high * below[i]) / sample.total]);
      drawn.forEach((sample, i) => (below[i] += sample[state]));
      const upper = drawn.map((sample, i) => [x(sample.now), base - (high * below[i]) / sample.total]);
      areas.push(s("polygon", { class: state, points: [...upper, ...lower.reverse()].map((point) => point.join(",")).join(" ") }, s("title", {}, state)));
    }
    put(this.chart, s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${count(pages.total - pages.free)} of ${count(pages.total)} pages in use` },
      [0, 0.5, 1].map((share) => [
        s("line", { class: "grid", x1: 36, x2: width - 4, y1: base - high * share, y2: base - high * share }),
        label(31, base - high * share + 4, short(Math.round(pages.total * share)), "end"),
      ]),
      areas, label(36, 185, "5 min ago"), label(width - 4, 185, "now", "end")),
    h("p", { class: "legend" }, STATES.map((state) => h("span", {}, h("i", { class: `key ${state}` }), `${state} ${count(pages[state])}`))));
    put(this.facts, `${percent(pages.total - pages.free, pages.total)} of ${count(pages.total)} pages hold something`);
  }
}
