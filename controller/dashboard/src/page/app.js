// The dashboard's page: its views, the search over all lists, and the events that keep it live.

import { $ } from "./dom.js";
import * as detail from "./detail.js";
import * as explain from "./explain.js";
import * as lists from "./lists.js";
import * as overview from "./overview.js";

const tabs = [...document.querySelectorAll("[role=tab]")];
const name = (tab) => tab.id.slice("tab-".length);
const isList = (view) => view in lists.lists;
let current = null;

// --- views: `#/routes`, or `#/routes/TEXT` for a search in it, `#/explain/URL` for a question. The slash keeps the
// browser from looking for an element of that name.

const show = (wanted, text) => {
  const isSame = wanted === current;
  current = tabs.some((tab) => name(tab) === wanted) ? wanted : "overview";
  for (const tab of tabs) {
    tab.setAttribute("aria-selected", name(tab) === current);
    tab.tabIndex = name(tab) === current ? 0 : -1;
  }
  $("overview").hidden = current !== "overview";
  $("explain").hidden = current !== "explain";
  $("list").hidden = !isList(current);
  const search = $("search").value.trim();
  const after = current === "explain" ? text : isList(current) ? search : "";
  const hash = `#/${current}${after ? `/${encodeURIComponent(after)}` : ""}`;
  if (location.hash !== hash) history[isSame ? "replaceState" : "pushState"](null, "", hash);
  lists.stop();
  if (isList(current)) {
    $("list").setAttribute("aria-labelledby", `tab-${current}`);
    lists.start(current, search);
  }
  if (current === "explain") explain.explain(text);
};
const follow = () => {
  const [view, text = ""] = location.hash.slice(2).split(/\/(.*)/s).map(decode);
  if (isList(view)) {
    const isNew = text !== $("search").value.trim();
    $("search").value = text;
    if (isNew) count();
  }
  show(view || "overview", text);
};
const decode = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

tabs.forEach((tab, at) => {
  tab.addEventListener("click", () => show(name(tab)));
  tab.addEventListener("keydown", (event) => {
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const tab = tabs[(next + tabs.length) % tabs.length];
    tab.focus();
    show(name(tab));
  });
});
document.addEventListener("keydown", (event) => {
  const isTyped = /^(INPUT|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape" && !isTyped) detail.leave();
  if (event.key !== "/" || isTyped || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  $("search").focus();
});

// --- search

let typing, asked = 0;
const count = async () => {
  asked += 1;
  const mine = asked;
  const found = await lists.counts($("search").value.trim());
  if (mine === asked) lists.showCounts(found);
  return mine === asked ? found : null;
};
const search = async () => {
  if (isList(current)) show(current);
  const found = await count().catch(() => null);
  if (!found || isList(current) || !$("search").value.trim()) return;
  show((found.find(([, total]) => total > 0) ?? found[0])[0]);
};
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(search, 150);
});

// --- events

let generation = null, findings = null, isLost = false;
const lost = () => {
  isLost = true;
  overview.lost();
};
const update = (event) => {
  const { controller, nginx } = event;
  if (!controller) return lost();
  overview.update(event);
  detail.refresh();
  if (!$("search").value.trim()) lists.showCounts(Object.keys(lists.lists).map((kind) => [kind, controller[kind]]));
  const isNew = isLost || nginx?.generation !== generation || controller.findings !== findings;
  isLost = false;
  if (generation !== null && isNew) {
    if (isList(current)) lists.refresh();
    if ($("search").value.trim()) count().catch(() => null);
  }
  generation = nginx?.generation ?? generation;
  findings = controller.findings;
};

addEventListener("hashchange", follow);
lists.listen();
explain.listen();
follow();
const events = new EventSource("/events");
events.onmessage = (event) => update(JSON.parse(event.data));
events.onerror = lost;
