// What is known of the row that was chosen. The statistics of endpoints stay live while it is open.

import { $, button, expiry, facts, get, link, make, milliseconds, number, plural, table } from "./dom.js";

const HEAD = ["Endpoint", "In flight", "Latency", "Requests", "Failures", "State"];

let chosen = null;

const chips = (names) => {
  const box = make("span");
  box.append(...names.map((name) => make("span", name, "chip")));
  return names.length ? box : "none";
};

/// Of each list: a title, facts, and what else there is.
const views = {
  routes: (row) => {
    const url = `${row.has_certificate ? "https" : "http"}://${row.host.replace(/^\*/, "any")}${row.path}`;
    const pairs = [
      ["Path type", row.path_type], ["Ingress or route", row.ingress || "none"], ["Service", row.service || "no backend"],
      ["Backend", row.backend && link(row.backend, `#/backends/${encodeURIComponent(row.backend)}`)],
      ["TLS", row.has_certificate ? link("has a certificate", `#/certificates/${encodeURIComponent(row.host)}`) : "no certificate"],
      ["Policies", chips(row.chips)],
    ];
    const isUrl = row.host !== "_" && row.path_type !== "regular expression";
    return { title: `${row.host}${row.path}`, pairs, backend: row.backend, rest: isUrl ? [link("Explain a request for it", `#/explain/${encodeURIComponent(url)}`)] : [] };
  },
  backends: (row) => ({
    title: row.id, backend: row.id, rest: [],
    pairs: [["Balancing", row.balancing], ["Canaries", row.alternatives.join(", ")]],
  }),
  certificates: (row) => {
    const { text, kind } = expiry(row.expires);
    const at = row.expires !== null && new Date(row.expires * 1000).toISOString().replace("T", " ").slice(0, 16);
    const pairs = [["Expiry", text, kind], ["Valid until", at && `${at} UTC`], ["Issuer", row.issuer], ["Key", row.algorithm], ["Secret", row.secret]];
    return { title: row.host, pairs, rest: [link("Paths of this host", `#/routes/${encodeURIComponent(row.host)}`)] };
  },
  findings: (row) => {
    const list = make("ul");
    list.append(...row.messages.map((message) => make("li", message)));
    const [kind, key] = row.object.split(" ");
    const rest = kind === "Ingress" ? [list, link("Paths of this Ingress", `#/routes/${encodeURIComponent(key)}`)] : [list];
    return { title: row.object, pairs: [["Severity", row.severity, { rejected: "bad", warning: "warn" }[row.severity]]], rest };
  },
};

const state = (one) => {
  if (one.ejected_ms) return [`ejected for ${Math.ceil(one.ejected_ms / 1000)} s`, "bad"];
  return one.draining ? ["draining", "warn"] : ["ready", "good"];
};
/// Asks nginx for the endpoints' statistics, and shows them in place of the last ones.
export const refresh = async () => {
  const mine = chosen;
  if (!mine?.backend) return;
  try {
    const { endpoints } = await get(`/api/backend?id=${encodeURIComponent(mine.backend)}`);
    if (mine !== chosen) return;
    const rows = endpoints.map((one) => [
      [one.address], [number(one.in_flight)], [one.ewma_seconds ? milliseconds(one.ewma_seconds) : "–"],
      [number(one.requests)], [number(one.failures), one.failures ? "warn" : ""], state(one),
    ]);
    mine.box.replaceChildren(make("h3", plural(rows.length, "endpoint")), rows.length ? table(HEAD, rows) : make("p", "Requests get 503 until it has one.", "bad"));
  } catch (error) {
    if (mine === chosen) mine.box.replaceChildren(make("p", error.message, "bad"));
  }
};

/// Shows a row; `left` is called when the reader closes it.
export const open = (kind, row, left) => {
  const { title, pairs, rest, backend } = views[kind](row), box = make("div"), node = $("detail");
  chosen = { backend, box, left };
  node.replaceChildren(button("Close", "quiet close", leave), make("h2", title), facts(pairs), box, ...rest);
  node.hidden = false;
  node.scrollTop = 0;
  refresh();
};
export const close = () => {
  chosen = null;
  $("detail").hidden = true;
};
/// As the button does; false: nothing was open.
export const leave = () => {
  if (!chosen) return false;
  const { left } = chosen;
  close();
  left();
  return true;
};
