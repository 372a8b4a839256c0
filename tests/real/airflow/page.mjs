// A reader in Airflow's own UI: signs in, opens the tab of a DAG and of a run, follows links, comes back by a reload.
// `node page.mjs BASE USER PASSWORD DAG RUN TASK` prints what it has seen, as JSON.
import { createRequire } from "node:module";

const { BROWSER_LIBRARIES, BROWSER_MODULES, BROWSER_PROGRAM } = process.env;
const require = createRequire(`${BROWSER_MODULES}/`);
const { chromium } = require("playwright-core");

const [base, user, password, dag, run, task] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: BROWSER_PROGRAM,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
  env: { ...process.env, LD_LIBRARY_PATH: BROWSER_LIBRARIES },
  timeout: 240_000,
});
const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
page.setDefaultTimeout(240_000);
const found = {};

async function inner(selector) {
  const frame = page.frameLocator("iframe");
  await frame.locator(selector).first().waitFor();
  return frame;
}

await page.goto(`${base}/`);
await page.fill("input[name=username]", user);
await page.fill("input[name=password]", password);
await page.keyboard.press("Enter");
await page.waitForURL((url) => !url.pathname.includes("login"));

await page.goto(`${base}/dags/${dag}`);
await page.locator(`a[href$="/dags/${dag}/plugin/checkpoints"]`).first().click();
let frame = await inner("h1");
found.dag = await frame.locator("h1").textContent();
found.icon = await page.evaluate(async (address) => (await fetch(address)).status, `${base}/cairn/static/icon.svg`);

await page.goto(`${base}/dags/${dag}/runs/${run}/plugin/run-checkpoints`);
frame = await inner("tbody tr");
found.run = await frame.locator("tbody tr").count();
await page.evaluate(() => (window.mark = 1));
await frame.locator("tbody a[data-airflow]").first().click();
await page.waitForURL(`**/dags/${dag}/runs/${run}`);
found.link = await page.evaluate(() => window.mark);

await page.goto(`${base}/dags/${dag}/runs/${run}/tasks/${task}/plugin/ti-checkpoints`);
frame = await inner("tbody tr");
found.task = await frame.locator("tbody tr").count();

// In the navigation Airflow mirrors the address of the page, so a reload comes back to it.
await page.goto(`${base}/plugin/cairn`);
frame = await inner("tbody a");
await frame.locator("tbody th a", { hasText: new RegExp(`^${dag}$`) }).click();
await (await inner("header nav")).locator("text=History").click();
await (await inner("form.filter")).locator("h1").waitFor();
await page.waitForURL("**/history");
found.mirrored = new URL(page.url()).pathname;
await page.reload();
found.reloaded = await (await inner("form.filter")).locator("h1").textContent();

// A session that ends while the tab is open.
await page.context().clearCookies();
found.ended = await page.evaluate(async (address) => {
  const answer = await fetch(address, { headers: { Accept: "text/html" } });
  return [answer.status, (await answer.text()).includes("sign in")];
}, `${base}/cairn/`);
await browser.close();
console.log(JSON.stringify(found));
