// The dashboard's page: an overview that events keep live, lists of which only the visible rows exist, and explain.
"use strict";
const ROW = 56, PAGE = 100;
const $ = (id) => document.getElementById(id);
const make = (tag, text, name) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (name) node.className = name;
  return node;
};
const number = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString("en"));
const get = async (path) => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  return answer.json();
};

// --- tabs

const tabs = [...document.querySelectorAll("[role=tab]")];
const name = (tab) => tab.id.slice("tab-".length);
let current = "overview";
const show = (wanted) => {
  current = tabs.some((tab) => name(tab) === wanted) ? wanted : "overview";
  for (const tab of tabs) {
    const is = name(tab) === current;
    if (is) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    tab.setAttribute("aria-selected", is);
    tab.tabIndex = is ? 0 : -1;
  }
  const isList = current in lists;
  $("overview").hidden = current !== "overview";
  $("explain").hidden = current !== "explain";
  $("list").hidden = !isList;
  $("list").setAttribute("aria-labelledby", `tab-${current}`);
  if (location.hash.slice(1) !== current) history.replaceState(null, "", `#${current}`);
  if (isList) restart();
};
tabs.forEach((tab, at) => {
  tab.addEventListener("click", () => show(name(tab)));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(at + step + tabs.length) % tabs.length];
    next.focus();
    show(name(next));
  });
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|SELECT)$/.test(event.target.tagName)) {
    event.preventDefault();
    $("search").focus();
  }
});

// --- lists: pages of rows are fetched as they come into sight

const days = (expires) => Math.floor((expires * 1000 - Date.now()) / 86400000);
const two = (first, second) => [first, second];
const lists = {
  routes: (row) => {
    const first = make("div", `${row.host} ${row.path}`, "first");
    const second = make("div", "", "second");
    for (const chip of row.chips) second.append(make("span", chip, "chip"));
    const to = row.endpoints === 0 ? " has no endpoints" : "";
    second.append(make("span", `${row.service || "no backend"}${to}`, to ? "bad" : ""));
    second.append(make("span", ` · Ingress ${row.ingress || "none"}${row.has_certificate ? " · certificate" : ""}`));
    return two(first, second);
  },
  backends: (row) => {
    const canary = row.alternatives.length ? ` · canaries: ${row.alternatives.join(", ")}` : "";
    const text = `${row.algorithm}${row.affinity ? " · cookie affinity" : ""}${canary}`;
    const second = make("div", "", "second");
    second.append(make("span", `${row.endpoints} endpoints`, row.endpoints ? "" : "bad"), make("span", ` · ${text}`));
    return two(make("div", row.id, "first"), second);
  },
  certificates: (row) => {
    const second = make("div", "", "second");
    if (row.expires !== null) {
      const left = days(row.expires);
      const date = new Date(row.expires * 1000).toISOString().slice(0, 10);
      second.append(make("span", left < 0 ? `expired ${date}` : `expires ${date}, in ${left} days`, left < 7 ? "bad" : left < 30 ? "warn" : "good"));
    }
    second.append(make("span", ` · ${row.algorithm || ""} · ${row.issuer || "issuer unknown"} · Secret ${row.secret}`));
    return two(make("div", row.host, "first"), second);
  },
  findings: (row) => {
    const first = make("div", "", "first");
    first.append(make("span", row.severity, { rejected: "bad", warning: "warn" }[row.severity] || "good"), make("span", ` ${row.object}`));
    return two(first, make("div", row.messages.join("; "), "second"));
  },
};
let pages = new Map(), total = 0, epoch = 0, generation = null;

const restart = () => {
  epoch += 1;
  pages = new Map();
  total = 0;
  $("detail").hidden = true;
  $("rows").replaceChildren();
  $("scroll").scrollTop = 0;
  load(0);
};
const load = async (page) => {
  if (pages.has(page)) return;
  const mine = epoch, list = current;
  pages.set(page, null);
  try {
    const answer = await get(`/api/${list}?offset=${page * PAGE}&limit=${PAGE}&q=${encodeURIComponent($("search").value)}`);
    if (mine !== epoch) return;
    pages.set(page, answer.rows);
    total = answer.total;
    $("found").textContent = `${number(total)} ${$("search").value ? "found" : "in all"}`;
    $("rows").style.height = `${total * ROW}px`;
    draw();
  } catch (error) {
    pages.delete(page);
    if (mine === epoch) $("found").textContent = `not to be had: ${error.message}`;
  }
};
const draw = () => {
  if (!(current in lists)) return;
  const box = $("scroll");
  const from = Math.max(0, Math.floor(box.scrollTop / ROW) - 5);
  const to = Math.min(total, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + 5);
  const focused = document.activeElement?.dataset?.row;
  const nodes = [];
  for (let at = from; at < to; at += 1) {
    const rows = pages.get(Math.floor(at / PAGE));
    if (rows === undefined) load(Math.floor(at / PAGE));
    const row = rows?.[at % PAGE];
    const item = make("li");
    item.style.top = `${at * ROW}px`;
    item.setAttribute("aria-setsize", total);
    item.setAttribute("aria-posinset", at + 1);
    const button = make("button");
    button.dataset.row = at;
    if (row) button.append(...lists[current](row));
    button.addEventListener("click", () => row && detail(row));
    item.append(button);
    nodes.push(item);
  }
  $("rows").replaceChildren(...nodes);
  if (focused !== undefined) $("rows").querySelector(`[data-row="${focused}"]`)?.focus({ preventScroll: true });
};
$("scroll").addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
addEventListener("resize", draw);
$("rows").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const at = Number(event.target.dataset.row);
  if (!step || Number.isNaN(at)) return;
  event.preventDefault();
  const next = Math.min(total - 1, Math.max(0, at + step));
  const box = $("scroll");
  if (next * ROW < box.scrollTop) box.scrollTop = next * ROW;
  if ((next + 1) * ROW > box.scrollTop + box.clientHeight) box.scrollTop = (next + 1) * ROW - box.clientHeight;
  draw();
  $("rows").querySelector(`[data-row="${next}"]`)?.focus({ preventScroll: true });
});
let typing;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(async () => {
    if (!(current in lists)) show("routes");
    else restart();
    await counts();
  }, 150);
});
const counts = async () => {
  const text = $("search").value;
  for (const tab of tabs.filter((tab) => name(tab) in lists)) {
    const answer = await get(`/api/${name(tab)}?limit=0&q=${encodeURIComponent(text)}`);
    tab.querySelector(".count").textContent = number(answer.total);
  }
};

const table = (head, rows) => {
  const node = make("table");
  const line = make("tr");
  head.forEach((text) => { const cell = make("th", text); cell.scope = "col"; line.append(cell); });
  const body = rows.map((cells) => {
    const line = make("tr");
    cells.forEach(([text, kind]) => line.append(make("td", text, kind)));
    return line;
  });
  node.append(line, ...body);
  return node;
};
const detail = async (row) => {
  const box = $("detail");
  box.hidden = false;
  box.replaceChildren(make("strong", row.id || row.object || row.backend || row.host));
  if (row.messages) row.messages.forEach((message) => box.append(make("p", message)));
  const backend = row.id || row.backend;
  if (!backend) return;
  try {
    const found = await get(`/api/backend?id=${encodeURIComponent(backend)}`);
    box.append(table(
      ["endpoint", "in flight", "latency", "attempts", "failures", "state"],
      found.endpoints.map((one) => [
        [one.address], [number(one.in_flight)], [one.ewma_seconds ? `${(one.ewma_seconds * 1000).toFixed(1)} ms` : "–"],
        [number(one.requests)], [number(one.failures), one.failures ? "warn" : ""],
        one.ejected_ms ? [`ejected, ${Math.ceil(one.ejected_ms / 1000)} s`, "bad"] : one.draining ? ["draining", "warn"] : ["ready", "good"],
      ]),
    ));
  } catch (error) {
    box.append(make("p", error.message, "bad"));
  }
};

// --- overview

const SVG = "http://www.w3.org/2000/svg";
const spark = (values) => {
  const svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
  const most = Math.max(...values, 1e-9), step = 100 / Math.max(1, values.length - 1);
  svg.setAttribute("viewBox", "0 0 100 30");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", values.map((value, at) => `${at ? "L" : "M"}${(at * step).toFixed(2)} ${(29 - (value / most) * 28).toFixed(2)}`).join(""));
  svg.append(path);
  return svg;
};
const tile = (title, value, kind, series) => {
  const box = make("div", undefined, "tile");
  box.append(make("span", title), make("b", value, kind));
  if (series && series.length > 1) box.append(spark(series));
  return box;
};
const history_ = { rate: [], errors: [], latency: [], connections: [] };
let last = null;
const push = (series, value) => { series.push(value); if (series.length > 120) series.shift(); };
const rates = (requests, now) => {
  if (requests && last && requests.all >= last.all && now - last.at > 500) {
    const seconds = (now - last.at) / 1000, all = requests.all - last.all, timed = requests.timed - last.timed;
    push(history_.rate, all / seconds);
    push(history_.errors, all ? ((requests.errors - last.errors) / all) * 100 : 0);
    if (timed > 0) push(history_.latency, ((requests.seconds - last.seconds) / timed) * 1000);
  }
  if (requests) last = { ...requests, at: now };
};
const end = (series, digits, unit) => (series.length ? series[series.length - 1].toFixed(digits) + unit : "–");
const update = ({ controller, nginx }) => {
  if (!controller) return;
  rates(nginx?.requests, Date.now());
  if (nginx?.connections !== null && nginx?.connections !== undefined) push(history_.connections, nginx.connections);
  const writes = controller.writes;
  const isGood = nginx?.generation && writes.is_last_applied;
  $("state").className = isGood ? "" : "bad";
  $("state").textContent = nginx?.generation
    ? `generation ${number(nginx.generation)}${writes.is_last_applied ? "" : ": the last change was refused"}`
    : "nginx does not answer";
  const used = nginx?.capacity_bytes ? `${(100 - (nginx.free_bytes / nginx.capacity_bytes) * 100).toFixed(0)} %` : "–";
  const failing = history_.errors[history_.errors.length - 1] > 0;
  $("tiles").replaceChildren(
    tile("requests a second", end(history_.rate, 1, ""), "", history_.rate),
    tile("answered with 5xx", end(history_.errors, 2, " %"), failing ? "bad" : "", history_.errors),
    tile("mean time", end(history_.latency, 1, " ms"), "", history_.latency),
    tile("connections", number(nginx?.connections), "", history_.connections),
    tile("hosts", number(controller.hosts)), tile("paths", number(controller.routes)),
    tile("backends", number(controller.backends)), tile("endpoints", number(controller.endpoints)),
    tile("certificates", number(controller.certificates)),
    tile("findings", number(controller.findings), controller.findings ? "warn" : "good"),
    tile("changes taken", number(writes.applied)),
    tile("refused, withheld", `${number(writes.refused)}, ${number(writes.withheld)}`, writes.withheld ? "bad" : ""),
    tile("workers", number(nginx?.workers)), tile("shared memory", used),
  );
  const changes = controller.changes.map((seconds) => seconds * 1000);
  const text = changes.length ? `${changes[changes.length - 1].toFixed(1)} ms, the slowest of the last ${changes.length}: ${Math.max(...changes).toFixed(1)} ms` : "none yet";
  const since = writes.applied_at ? `, ${new Date(writes.applied_at * 1000).toLocaleTimeString()}` : "";
  $("changes").replaceChildren(tile(`last change${since}`, text, "", changes));
  if (!$("search").value) {
    for (const kind of Object.keys(lists)) $(`tab-${kind}`).querySelector(".count").textContent = number(controller[kind]);
  }
  if (generation !== null && nginx?.generation !== generation && current in lists) {
    pages = new Map();
    draw();
  }
  generation = nginx?.generation ?? generation;
};
const listen = () => {
  const events = new EventSource("/events");
  events.onmessage = (event) => update(JSON.parse(event.data));
  events.onerror = () => { $("state").className = "bad"; $("state").textContent = "the controller does not answer: trying again"; };
};

// --- explain

$("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const box = $("answer");
  try {
    const text = $("url").value, url = new URL(text);
    // The path as it is written: URL would take its dots away.
    const target = text.replace(/^https?:\/\/[^/?#]*/i, "").replace(/#.*/, "") || "/";
    const query = new URLSearchParams({ host: url.host, path: target.startsWith("/") ? target : `/${target}`, method: $("method").value, scheme: url.protocol.slice(0, -1) });
    const found = await get(`/api/explain?${query.toString().replaceAll("+", "%20")}`);
    const { status, location: to, why } = found.outcome;
    const answer = status ? `${status}${to ? ` to ${to}` : ""}: ${why}` : why;
    box.replaceChildren(make("h2", answer), make("p", found.server ? `host ${found.server.host} (${found.server.found}), path ${found.path}` : "no rules for this host, and none for all hosts"));
    box.append(table(["", "path", "Ingress", "to", "why"], found.rules.map((rule) => [
      [rule.wins ? "wins" : "loses", rule.wins ? "good" : "bad"], [Object.values(rule.path ?? {}).join("") || String(rule.path)],
      [`${rule.namespace}/${rule.ingress}`], [`${rule.service}:${rule.port}`], [rule.why],
    ])));
    found.conditions.forEach((condition) => box.append(make("p", `needs: ${condition}`)));
    if (found.backend) {
      box.append(make("h2", `backend ${found.backend.id}`), table(["endpoint", "", "why"], found.backend.endpoints.map((one) => [[one.address], [one.eligible ? "eligible" : "closed", one.eligible ? "good" : "bad"], [one.why || ""]])));
    }
    if (found.policies) {
      box.append(make("h2", "policies"), make("pre", JSON.stringify(found.policies, null, 2)));
    }
  } catch (error) {
    box.replaceChildren(make("p", error.message, "bad"));
  }
});

addEventListener("hashchange", () => show(location.hash.slice(1)));
show(location.hash.slice(1));
get("/api/overview").then(update, () => {});
listen();
