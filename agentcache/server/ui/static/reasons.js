// What a miss means, in words, and what can be done about it.

import { count } from "./dom.js";

const at = (miss) => count(miss.at_token);

export const REASONS = {
  cold: {
    name: "new text",
    why: (miss) => miss.at_token
      ? `Everything the cache had was used: the first ${at(miss)} tokens. What follows was never seen behind them.`
      : "Nothing that begins like this prompt is in the cache.",
    todo: (miss) => miss.at_token
      ? "Nothing: new text has to be computed once. The next prompt that begins like this one finds it."
      : "The first request of its kind always pays. If you expected a hit, compare how both prompts begin: a date, an id or another tool list in the first lines makes everything behind them new.",
  },
  below_page: {
    name: "below a page",
    why: () => "What was left to reuse is shorter than a page, and a page is the least that is kept.",
    todo: () => "Nothing to win here. Put more of what is shared in front, or serve with a smaller --page-size.",
  },
  diverged: {
    name: "diverged",
    why: (miss) => `The cache knows the first ${at(miss)} tokens with another continuation. From there on the texts differ, as below.`,
    todo: () => "If the two were meant to be equal, make them so: send history as it was sent before, keep the order of tools and keys, and move what changes (times, ids, retrieved text) to the end. If they are two tasks with one beginning, this is as it should be.",
  },
  evicted: {
    name: "evicted",
    why: (miss) => `The page at token ${at(miss)} was in the cache and had to make room for others.`,
    todo: () => "Pin the session or say that it waits for a tool, so that its pages are kept. If it happens often: a larger pool (--num-pages, --kv-memory), or memory below it (--host-pages, --disk-dir).",
  },
  expired: {
    name: "lease expired",
    why: (miss) => `The page at token ${at(miss)} was kept by a pin. The pin ran out, and then the page made room.`,
    todo: () => "Ask for a longer lease (ttl_s), or renew it when the tool takes longer than expected.",
  },
  salt: {
    name: "another salt",
    why: () => "This key has sent the same beginning under another cache_salt. Salts never share pages.",
    todo: () => "Use one salt for all that may share, or none.",
  },
  model: {
    name: "another model",
    why: () => "This key has sent the same beginning to another model or another precision. Keys and values of one are of no use to the other.",
    todo: () => "Nothing: the pages on disk are used again when that model is served.",
  },
  in_flight: {
    name: "in flight",
    why: () => "Another request was computing the same pages at that moment.",
    todo: () => "Nothing: who comes a moment later finds them.",
  },
  template: {
    name: "template",
    why: (miss) => `The chat template does not render the earlier turns as they were rendered before, so from token ${at(miss)} on the prompt is another one.`,
    todo: () => "Use a template that prints replies as they were generated (reasoning included), or keep what it strips out of the messages.",
  },
  disabled: {
    name: "disabled",
    why: () => "The prefix cache is off, or the request asked for prompt log-probabilities, which need every position computed.",
    todo: () => "Leave prompt_logprobs and echo with logprobs out where you do not need them.",
  },
};

export const nameOf = (miss) => (miss ? REASONS[miss.code]?.name ?? miss.code : "all cached");
