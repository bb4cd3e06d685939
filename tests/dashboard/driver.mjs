// driver.mjs - a browser that is led line by line: each line of standard input is {"code": "..."}, the body of an async
// function of (page, tools), and is answered by {"value": ...} or {"failure": "..."}.
//
// tools: problems (what the page wrote as an error, requests off the machine and failed ones), axe (finds what keeps
// people with disabilities from using the page), newPage(options), forget (nothing is left of before, but an empty page).
import { createRequire } from "node:module";
import readline from "node:readline";

const require = createRequire(`${process.argv[2]}/package.json`);
const { chromium } = require("playwright-core");
const axePath = require.resolve("axe-core/axe.min.js");
const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor;

const browser = await chromium.launch({ executablePath: process.argv[3], args: ["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"] });
const problems = [];
let page;

async function newPage(options = {}) {
  const context = await browser.newContext({ bypassCSP: false, ...options });
  page = await context.newPage();
  page.on("console", (message) => message.type() === "error" && problems.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => problems.push(`page: ${error.message}`));
  page.on("request", (request) => {
    const host = new URL(request.url()).hostname;
    if (!["127.0.0.1", "localhost"].includes(host)) problems.push(`request to ${request.url()}`);
  });
  return page;
}

async function forget() {
  for (const context of browser.contexts()) await context.close();
  problems.length = 0;
  await newPage();
}

async function axe() {
  // As a part of the browser, so that the page's own rules for scripts stay in force for the page.
  const session = await page.context().newCDPSession(page);
  const source = (await import("node:fs")).readFileSync(axePath, "utf8");
  await session.send("Runtime.evaluate", { expression: source });
  const { result } = await session.send("Runtime.evaluate", {
    expression: `axe.run(document, {resultTypes: ["violations"]}).then((found) => JSON.stringify(found.violations.map((one) =>
      ({id: one.id, impact: one.impact, help: one.help, nodes: one.nodes.map((node) => node.html.slice(0, 200) + " " + (node.any[0]?.message || ""))}))))`,
    awaitPromise: true, returnByValue: true,
  });
  return JSON.parse(result.value);
}

await newPage();
const tools = { problems, axe, newPage, forget };
console.log(JSON.stringify({ value: "ready" }));
for await (const line of readline.createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = { value: (await new AsyncFunction("page", "tools", JSON.parse(line).code)(page, tools)) ?? null };
  } catch (failure) {
    answer = { failure: String(failure.stack || failure) };
  }
  console.log(JSON.stringify(answer));
}
await browser.close();
