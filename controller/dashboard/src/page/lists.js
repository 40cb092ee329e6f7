// The lists. Rows are fetched a page at a time, and only those in sight exist as elements.

import { $, expiry, get, make, number, plural } from "./dom.js";
import { close, open } from "./detail.js";

const PAGE = 100;
/// Rows beyond the edges, so that scrolling by a line shows no gap.
const MARGIN = 5;

const cell = (...parts) => {
  const node = make("span");
  node.append(...parts);
  return node;
};
const chips = (names) => cell(...names.map((name) => make("span", name, "chip")));
const badge = (severity) => {
  const kind = { rejected: "bad", warning: "warn" }[severity] ?? "soft";
  return make("span", severity, `badge ${kind}`);
};
const endpoints = (count) => (count ? make("span", plural(count, "endpoint"), "tag") : make("span", "no endpoints", "tag bad"));

/// Of each list: its columns, what its rows are called, a text for no rows at all, and the name and cells of a row.
export const lists = {
  routes: {
    columns: ["Host and path", "Service", "Policies", "Ingress or route"], one: "path", none: "No host is served: no Ingress names this class.",
    name: (row) => `${row.host}${row.path}`,
    cells: (row) => [
      cell(row.host, make("span", row.path, "mono"), " ", make("span", row.path_type, "tag"), row.has_certificate ? make("span", " TLS", "tag") : ""),
      row.service ? cell(make("span", `${row.service} `), endpoints(row.endpoints)) : cell("no backend"), chips(row.chips), cell(row.ingress || "none"),
    ],
  },
  backends: {
    columns: ["Backend", "Endpoints", "Balancing", "Canaries"], one: "backend", none: "No backend is configured.",
    name: (row) => row.id,
    cells: (row) => [cell(row.id), cell(endpoints(row.endpoints)), cell(row.balancing), cell(row.alternatives.join(", "))],
  },
  certificates: {
    columns: ["Host", "Expiry (the next first)", "Issuer", "Secret"], one: "certificate", none: "No host has a certificate.",
    name: (row) => row.host,
    cells: (row) => {
      const { text, kind } = expiry(row.expires);
      return [cell(row.host), cell(make("span", text, kind)), cell(row.issuer || "issuer unknown"), cell(row.secret)];
    },
  },
  findings: {
    columns: ["Object", "Finding"], one: "object", none: "No findings: every object is served as written.",
    name: (row) => row.object,
    cells: (row) => [cell(badge(row.severity), row.object), make("span", row.messages.join("; "), "clamp")],
  },
};

let kind = null, text = "", total = null, epoch = 0, stamp = 0, active = 0, pages = new Map(), drawn = new Map();

const height = () => parseFloat(getComputedStyle($("rows")).getPropertyValue("--row"));
/// What the scrolling box has for rows: the titles stay at its top.
const space = () => $("scroll").clientHeight - $("head").offsetHeight;
const rowAt = (at) => pages.get(Math.floor(at / PAGE))?.rows?.[at % PAGE];

/// Begins a list anew.
export const start = (wanted, search) => {
  [kind, text, total, active, pages, drawn] = [wanted, search, null, 0, new Map(), new Map()];
  epoch += 1;
  close();
  $("list").className = kind;
  $("head").replaceChildren(...lists[kind].columns.map((title) => make("span", title)));
  $("rows").replaceChildren();
  $("scroll").scrollTop = 0;
  load(0);
};
export const stop = () => {
  kind = null;
  epoch += 1;
};
/// What is served has changed: what is in sight is fetched again, and stays until then.
export const refresh = () => {
  stamp += 1;
  if (total === null) load(0);
  else draw();
};

const load = async (page) => {
  const before = pages.get(page), mine = { epoch, stamp };
  if (before?.asked === stamp) return;
  pages.set(page, { rows: before?.rows, asked: stamp });
  try {
    const answer = await get(`/api/${kind}?offset=${page * PAGE}&limit=${PAGE}&q=${encodeURIComponent(text)}`);
    if (mine.epoch !== epoch) return;
    pages.set(page, { rows: answer.rows, asked: mine.stamp });
    count(answer.total);
    draw();
  } catch (error) {
    if (mine.epoch !== epoch) return;
    pages.delete(page);
    $("found").textContent = `Could not load the list: ${error.message}`;
  }
};
const count = (found) => {
  total = found;
  const { one, none } = lists[kind];
  const what = text ? `${plural(total, one)} ${total === 1 ? "matches" : "match"} “${text}”` : total ? plural(total, one) : none;
  if ($("found").textContent !== what) $("found").textContent = what;
  $("rows").style.height = `${total * height()}px`;
  document.querySelector(".pane").classList.toggle("empty", total === 0);
};

let waiting;
/// Makes the rows in sight. Those that fly past get their name alone: thousands of elements a second are garbage.
const draw = (isFast = false) => {
  if (!kind || total === null) return;
  const box = $("scroll"), row = height();
  const first = Math.floor(box.scrollTop / row), end = Math.ceil((box.scrollTop + space()) / row);
  const from = Math.max(0, first - MARGIN), to = Math.min(total, end + MARGIN);
  const missing = new Set();
  for (let at = from; at < to; at += 1) {
    const page = Math.floor(at / PAGE);
    if (pages.get(page)?.asked !== stamp) missing.add(page);
    place(at, row, isFast);
  }
  // One row is in the order of the tab key, the others are reached by arrow keys.
  const reached = active >= from && active < to ? active : Math.min(first, total - 1);
  for (const [at, one] of drawn) {
    const isFocused = one.button === document.activeElement;
    one.button.tabIndex = at === reached ? 0 : -1;
    if (at >= total || (!isFocused && (at < from || at >= to))) {
      one.item.remove();
      drawn.delete(at);
    }
  }
  // A scroll bar that is dragged passes pages that nobody reads.
  clearTimeout(waiting);
  if (missing.size || isFast) {
    waiting = setTimeout(() => {
      missing.forEach(load);
      if (isFast) draw();
    }, 50);
  }
};
// A row that stays keeps its element: a click between two drawings arrives, and the focus stays.
const place = (at, row, isFast) => {
  let one = drawn.get(at);
  if (!one) {
    one = { item: make("li"), button: make("button"), data: undefined };
    one.button.dataset.row = at;
    one.button.setAttribute("aria-expanded", false);
    one.button.setAttribute("aria-controls", "detail");
    one.item.append(one.button);
    drawn.set(at, one);
    const next = [...$("rows").children].find((item) => Number(item.firstChild.dataset.row) > at);
    $("rows").insertBefore(one.item, next ?? null);
  }
  one.item.style.top = `${at * row}px`;
  one.item.setAttribute("aria-setsize", total);
  one.item.setAttribute("aria-posinset", at + 1);
  const data = rowAt(at);
  // The rows of a page that is fetched again are others, and mostly say the same.
  if (!data || (isFast && !one.data)) one.button.textContent = data ? lists[kind].name(data) : "…";
  else if (one.data !== data && JSON.stringify(one.data) !== JSON.stringify(data)) one.button.replaceChildren(...lists[kind].cells(data));
  if (!isFast) one.data = data;
};

const select = (at) => {
  const data = rowAt(at);
  if (!data) return;
  active = at;
  for (const [place, { button }] of drawn) button.setAttribute("aria-expanded", place === at);
  open(kind, data, () => {
    drawn.get(at)?.button.setAttribute("aria-expanded", false);
    drawn.get(at)?.button.focus({ preventScroll: true });
  });
  // The list may have become narrower or lower.
  draw();
  reveal(at);
};
const reveal = (at) => {
  const box = $("scroll"), row = height();
  if (at * row < box.scrollTop) box.scrollTop = at * row;
  if ((at + 1) * row > box.scrollTop + space()) box.scrollTop = (at + 1) * row - space();
};

const keys = (event) => {
  const at = Number(event.target.dataset.row), whole = Math.max(1, Math.floor(space() / height()) - 1);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + whole, PageUp: at - whole, Home: 0, End: total - 1 }[event.key];
  if (next === undefined || Number.isNaN(at)) return;
  event.preventDefault();
  active = Math.min(total - 1, Math.max(0, next));
  reveal(active);
  draw();
  drawn.get(active)?.button.focus({ preventScroll: true });
};

/// The number of rows of each list that have this text.
export const counts = (search) =>
  Promise.all(Object.keys(lists).map(async (kind) => [kind, (await get(`/api/${kind}?limit=0&q=${encodeURIComponent(search)}`)).total]));

/// Beside the names of the lists.
export const showCounts = (pairs) => {
  for (const [kind, total] of pairs) {
    const node = document.querySelector(`#tab-${kind} .count`), written = number(total);
    if (node.textContent !== written) node.textContent = written;
    node.classList.toggle("none", total === 0);
  }
};

export const listen = () => {
  let isDue = false, before = 0;
  $("scroll").addEventListener("scroll", () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      const { scrollTop, clientHeight } = $("scroll"), isFast = Math.abs(scrollTop - before) > clientHeight;
      [isDue, before] = [false, scrollTop];
      draw(isFast);
    });
  }, { passive: true });
  addEventListener("resize", () => {
    if (kind && total !== null) count(total);
    draw();
  });
  $("rows").addEventListener("keydown", keys);
  $("rows").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) select(Number(button.dataset.row));
  });
};
