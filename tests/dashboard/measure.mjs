// First paint, memory, search and scrolling of the dashboard, with as many Ingresses as there are.
//
// node measure.mjs URL [SEARCH]

import { readFileSync } from "node:fs";
import { open, pageOf, pause, withBrowser } from "./browser.mjs";

const [url, search = "app-9876"] = process.argv.slice(2);
const BUDGET = { paint_ms: 1_000, memory_mb: 100 };
const RUNS = 5;
const errors = [];
const megabytes = (bytes) => Math.round(bytes / 104_857.6) / 10;

/// Times from the start of the navigation: first and largest paint, and until the first rows are there.
const paints = async (page, view) => {
  await page.goto("about:blank");
  await page.goto(`${url}#/${view}`);
  await page.waitForSelector(view === "overview" ? "#served b" : "#rows button span");
  await pause(500);
  return page.evaluate(async () => {
    const first = performance.getEntriesByName("first-contentful-paint")[0].startTime;
    const largest = await new Promise((done) => {
      new PerformanceObserver((list) => done(list.getEntries().at(-1).startTime)).observe({ type: "largest-contentful-paint", buffered: true });
    });
    return { first, largest };
  });
};

/// What the process of the page has for itself, and all that it has mapped, in bytes.
const memory = async (browser, page) => {
  const root = await browser.target().createCDPSession();
  const { processInfo } = await root.send("SystemInfo.getProcessInfo");
  const read = (pid, name) => Number(readFileSync(`/proc/${pid}/status`, "utf8").match(new RegExp(`${name}:\\s+(\\d+)`))[1]) * 1024;
  const renderers = processInfo.filter(({ type }) => type === "renderer").map(({ id }) => id);
  // Chromium keeps a spare one, which is smaller.
  const pid = renderers.sort((a, b) => read(b, "RssAnon") - read(a, "RssAnon"))[0];
  const { JSHeapUsedSize, Nodes } = await page.metrics();
  return { own: read(pid, "RssAnon"), resident: read(pid, "VmRSS"), heap: JSHeapUsedSize, nodes: Nodes };
};

/// Types, and waits for the row; then wheels through the list, with the longest time between two frames.
const use = async (page) => {
  await open(page, url, "routes");
  await page.waitForSelector("#rows button span");
  const searched = await page.evaluate(async (text) => {
    const input = document.getElementById("search"), began = performance.now();
    input.value = text;
    input.dispatchEvent(new Event("input"));
    while (!document.getElementById("found").textContent.includes(text)) await new Promise(requestAnimationFrame);
    const took = performance.now() - began;
    input.value = "";
    input.dispatchEvent(new Event("input"));
    await new Promise((done) => setTimeout(done, 500));
    return took;
  }, search);
  const frames = await page.evaluate(async () => {
    const box = document.getElementById("scroll"), times = [];
    let last = performance.now();
    for (let at = 0; at < 300; at += 1) {
      box.scrollTop += at < 150 ? 120 : box.scrollHeight / 150;
      const now = await new Promise(requestAnimationFrame);
      times.push(now - last);
      last = now;
    }
    return times.slice(1).sort((a, b) => a - b);
  });
  await page.waitForFunction(() => [...document.querySelectorAll("#rows button")].every((row) => row.textContent !== "…"));
  return { searched, median: frames[Math.floor(frames.length / 2)], longest: frames.at(-1) };
};

await withBrowser(async (browser) => {
  const page = await pageOf(browser, errors);
  await page.setViewport({ width: 1280, height: 800 });
  const { controller } = await (await fetch(`${url}api/overview`)).json();
  console.log(`${controller.ingresses} Ingresses, ${controller.services} Services, ${controller.endpoints} endpoints; Chromium ${(await browser.version()).split("/")[1]}`);
  let slowest = 0;
  for (const view of ["overview", "routes"]) {
    const runs = [];
    for (let run = 0; run < RUNS; run += 1) runs.push(await paints(page, view));
    const list = (name) => runs.map((run) => Math.round(run[name])).sort((a, b) => a - b);
    slowest = Math.max(slowest, ...list("first"));
    console.log(`${view}: first contentful paint ${list("first").join(", ")} ms; largest ${list("largest").join(", ")} ms`);
  }
  const before = await memory(browser, page), times = await use(page), peak = await memory(browser, page);
  const session = await page.createCDPSession();
  await session.send("HeapProfiler.collectGarbage");
  await pause(1_000);
  const after = await memory(browser, page);
  console.log(`search: ${Math.round(times.searched)} ms from the key to the rows (150 ms of it wait for another key)`);
  console.log(`scrolling to the end: a frame takes ${times.median.toFixed(1)} ms, the longest ${times.longest.toFixed(1)} ms`);
  for (const [name, one] of [["when it is open", before], ["after that scrolling", peak], ["when garbage is collected", after]]) {
    const parts = [`process ${megabytes(one.own)} MB of its own`, `${megabytes(one.resident)} MB resident with shared libraries`, `JavaScript ${megabytes(one.heap)} MB`, `${one.nodes} nodes`];
    console.log(`memory ${name}: ${parts.join(", ")}`);
  }
  if (slowest > BUDGET.paint_ms) errors.push(`first paint took ${Math.round(slowest)} ms, more than ${BUDGET.paint_ms}`);
  if (Math.max(before.own, after.own) > BUDGET.memory_mb * 1_048_576) errors.push(`the page takes more than ${BUDGET.memory_mb} MB`);
});
errors.forEach((error) => console.log(error));
process.exit(errors.length ? 1 : 0);
