// The overview: traffic since the page was opened, what needs attention, the last changes, and how much is served.

import { $, bars, chart, duration, expiry, facts, get, link, make, milliseconds, number, plural } from "./dom.js";

/// As many samples as a chart shows, one for each event.
const SAMPLES = 120;
const series = { rate: [], errors: [], latency: [], connections: [] };
let last = null, began = null;

const push = (values, value) => {
  values.push(value);
  if (values.length > SAMPLES) values.shift();
};

const sample = (nginx) => {
  const now = Date.now(), { requests, connections } = nginx ?? {};
  began ??= now;
  if (connections !== null && connections !== undefined) push(series.connections, connections);
  if (!requests) return;
  if (last && requests.all >= last.all && now - last.at > 500) {
    const seconds = (now - last.at) / 1000, all = requests.all - last.all, timed = requests.timed - last.timed;
    push(series.rate, all / seconds);
    push(series.errors, all ? ((requests.errors - last.errors) / all) * 100 : 0);
    if (timed > 0) push(series.latency, (requests.seconds - last.seconds) / timed);
  }
  last = { ...requests, at: now };
};

// A tile is made once and its text changed, so that a link in it keeps the focus.
const tiles = new Map();
const tile = (box, title, value, { kind = "", note = "", href, drawing } = {}) => {
  let parts = tiles.get(title);
  if (!parts) {
    const node = make(href ? "a" : "div", undefined, "tile");
    if (href) node.href = href;
    parts = { value: make("b"), note: make("small"), drawing: make("div") };
    node.append(make("span", title), parts.value, parts.drawing, parts.note);
    box.append(node);
    tiles.set(title, parts);
  }
  parts.value.textContent = value;
  parts.value.className = kind;
  parts.note.textContent = note;
  if (drawing) parts.drawing.replaceChildren(drawing);
};

const traffic = (isTimed) => {
  const show = (title, values, write, kind, empty = "measuring …") => {
    const note = values.length > 1 ? `highest ${write(Math.max(...values))}` : values.length ? "" : empty;
    const value = values.length ? write(values[values.length - 1]) : "–";
    tile($("traffic"), title, value, { kind, note, drawing: chart(values) });
  };
  const rate = (value) => number(value.toFixed(value < 10 ? 1 : 0));
  const failing = series.errors[series.errors.length - 1] > 0;
  show("Requests per second", series.rate, rate);
  show("Responses with 5xx", series.errors, (value) => `${value.toFixed(value && value < 10 ? 2 : 0)} %`, failing ? "bad" : "");
  show("Mean response time", series.latency, milliseconds, "", isTimed ? "no requests yet" : "not measured at this size: see /metrics");
  show("Open connections", series.connections, number);
  $("window").textContent = `since this page was opened, ${duration((Date.now() - began) / 1000)} ago; at most 6 minutes`;
};

const count = (title, kind, value, note, name) =>
  tile($("served"), title, number(value), { href: `#/${kind}`, note, kind: name });

const served = (controller) => {
  const { rejected, warnings, notes } = controller.severities;
  const parts = [[rejected, `${rejected} rejected`], [warnings, plural(warnings, "warning")], [notes, plural(notes, "note")]];
  const found = parts.filter(([many]) => many).map(([, text]) => text).join(", ");
  count("Ingresses", "routes", controller.ingresses);
  count("Hosts", "routes", controller.hosts);
  count("Paths", "routes", controller.routes);
  count("Backends", "backends", controller.backends);
  count("Endpoints", "backends", controller.endpoints);
  count("Certificates", "certificates", controller.certificates);
  count("Findings", "findings", controller.findings, found, rejected ? "bad" : warnings ? "warn" : "");
};

const memory = ({ capacity_bytes: all, free_bytes: free }) => {
  const megabytes = (bytes) => number(Math.round(bytes / 1_048_576));
  return all ? `, ${megabytes(all - free)} of ${megabytes(all)} MiB of shared memory in use` : "";
};

const changes = ({ changes, writes }) => {
  const newest = changes[changes.length - 1], slowest = Math.max(...changes.map((change) => change.seconds));
  const box = $("changes");
  if (!newest) return box.replaceChildren(make("p", "None since the controller started.", "soft"));
  const tile = make("div", undefined, "tile"), ago = `${duration(newest.ago_seconds)} ago`;
  tile.append(
    make("span", "Last change: time until live"), make("b", milliseconds(newest.seconds)),
    bars(changes.map((change) => change.seconds)),
    make("small", changes.length > 1 ? `${ago}; the slowest of the last ${changes.length} took ${milliseconds(slowest)}` : ago),
    facts([
      ["Applied", plural(writes.applied, "write")],
      ["Refused", plural(writes.refused, "write"), writes.is_last_applied ? "" : "bad"],
      ["Withheld", plural(writes.withheld, "record"), writes.withheld ? "bad" : ""],
    ]),
  );
  box.replaceChildren(tile);
};

const item = (kind, word, title, text) => {
  const node = make("li");
  node.append(make("span", word, `badge ${kind}`), title);
  if (text) node.append(make("p", text));
  return node;
};

/// The findings and certificates of the lists, asked again when what is served has changed, and now and then.
let asked = { generation: null, at: 0 };
const attention = async ({ controller, nginx }) => {
  const isNew = asked.generation !== nginx?.generation || asked.findings !== controller.findings;
  if (!isNew && Date.now() - asked.at < 60_000) return;
  asked = { generation: nginx?.generation, findings: controller.findings, at: Date.now() };
  const items = [], { writes, severities } = controller;
  if (nginx?.last_error) items.push(item("bad", "error", make("b", "nginx refused the last write"), nginx.last_error));
  if (writes.withheld) items.push(item("bad", "withheld", make("b", plural(writes.withheld, "record")), "nginx does not get them, and their requests are refused: see the Events of their objects."));
  try {
    const [findings, certificates] = await Promise.all([get("/api/findings?limit=6"), get("/api/certificates?limit=4")]);
    for (const { object, severity, messages } of findings.rows.filter((row) => row.severity !== "note")) {
      items.push(item(severity === "rejected" ? "bad" : "warn", severity, link(object, `#/findings/${encodeURIComponent(object)}`), messages.join("; ")));
    }
    const more = severities.rejected + severities.warnings - findings.rows.filter((row) => row.severity !== "note").length;
    if (more > 0) {
      const rest = make("li");
      rest.append(link(`${plural(more, "more finding")}`, "#/findings"));
      items.push(rest);
    }
    for (const { host, expires } of certificates.rows) {
      const { text, kind } = expiry(expires);
      if (kind === "bad" || kind === "warn") items.push(item(kind, "certificate", link(host, `#/certificates/${encodeURIComponent(host)}`), text));
    }
  } catch (error) {
    items.push(item("bad", "error", make("b", "Could not load the findings"), error.message));
    asked.at = 0;
  }
  if (!items.length) items.push(item("good", "ok", "Every object is served as written, and no certificate expires within 30 days."));
  $("attention").replaceChildren(...items);
};

const state = (nginx, writes) => {
  const node = $("state"), isLive = nginx?.generation !== null && nginx?.generation !== undefined;
  const text = !isLive ? "nginx does not answer" : writes.is_last_applied ? `Live · generation ${number(nginx.generation)}` : `The last change was refused · generation ${number(nginx.generation)} is live`;
  node.className = isLive && writes.is_last_applied ? "" : "bad";
  // The same text again would be read out again.
  if (node.textContent !== text) node.textContent = text;
};

/// Shows what an event says.
export const update = (event) => {
  const { controller, nginx } = event;
  sample(nginx);
  state(nginx, controller.writes);
  traffic(nginx?.is_timed);
  served(controller);
  changes(controller);
  attention(event);
  const workers = nginx?.workers ? `${plural(nginx.workers, "worker")}${memory(nginx)}` : "no answer";
  $("nginx").textContent = `Oxigress ${controller.version} · nginx: ${workers}`;
};

export const lost = () => {
  $("state").className = "bad";
  $("state").textContent = "The controller does not answer: trying again …";
};
