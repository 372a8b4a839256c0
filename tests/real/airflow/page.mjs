// Two users in Airflow's own UI: each opens a tab by its address before signing in, then the tabs of the other
// destinations; the first also follows links, reloads, and stays until the session has ended.
// `node page.mjs BASE DAG RUN TASK USER PASSWORD USER PASSWORD` prints what they have seen, as JSON.
import { createRequire } from "node:module";

const { BROWSER_LIBRARIES, BROWSER_MODULES, BROWSER_PROGRAM } = process.env;
const require = createRequire(`${BROWSER_MODULES}/`);
const { chromium } = require("playwright-core");

const [base, dag, run, task, ...users] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: BROWSER_PROGRAM,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
  env: { ...process.env, LD_LIBRARY_PATH: BROWSER_LIBRARIES },
  timeout: 240_000,
});

async function inner(page, selector) {
  const frame = page.frameLocator("iframe");
  await frame.locator(selector).first().waitFor();
  return frame;
}

// Opens a tab without a session, signs in where Airflow asks for it, and comes back to the tab.
async function signedIn(page, user, password) {
  await page.goto(`${base}/dags/${dag}/plugin/checkpoints`);
  await page.waitForURL((url) => url.pathname.includes("login"));
  const found = { frames: await page.locator("iframe").count() };
  await page.fill("input[name=username]", user);
  await page.fill("input[name=password]", password);
  await page.keyboard.press("Enter");
  await page.waitForURL((url) => !url.pathname.includes("login"));
  found.comesBackTo = new URL(page.url()).pathname;
  found.dag = await (await inner(page, "h1")).locator("h1").textContent();
  return found;
}

// The tabs of a run, a task and a task instance, and the entry in the navigation.
async function tabs(page) {
  const found = {};
  const at = { run: `runs/${run}/plugin/run-checkpoints`, task: `tasks/${task}/plugin/task-checkpoints` };
  at.instance = `runs/${run}/tasks/${task}/plugin/ti-checkpoints`;
  for (const [name, path] of Object.entries(at)) {
    await page.goto(`${base}/dags/${dag}/${path}`);
    const frame = await inner(page, "tbody tr");
    found[name] = [await frame.locator("h1").textContent(), await frame.locator("main").getByText(run).count() > 0];
  }
  await page.goto(`${base}/plugin/cairn`);
  found.nav = await (await inner(page, "tbody a")).locator("tbody th a", { hasText: new RegExp(`^${dag}$`) }).count();
  return found;
}

// Links: into Airflow without a reload, and from one page of ours to another, which a reload comes back to.
async function links(page) {
  const found = {};
  await page.goto(`${base}/dags/${dag}`);
  await page.locator(`a[href$="/dags/${dag}/plugin/checkpoints"]`).first().click();
  await inner(page, "h1");
  found.icon = await page.evaluate(async (address) => (await fetch(address)).status, `${base}/cairn/static/icon.svg`);
  await page.goto(`${base}/dags/${dag}/runs/${run}/plugin/run-checkpoints`);
  let frame = await inner(page, "tbody tr");
  await page.evaluate(() => (window.mark = 1));
  await frame.locator("tbody a[data-airflow]").first().click();
  await page.waitForURL(`**/dags/${dag}/runs/${run}`);
  found.link = await page.evaluate(() => window.mark);

  // In the navigation Airflow mirrors the address of the page, so a reload comes back to it.
  await page.goto(`${base}/plugin/cairn`);
  frame = await inner(page, "tbody a");
  await frame.locator("tbody th a", { hasText: new RegExp(`^${dag}$`) }).click();
  await (await inner(page, "header nav")).locator("text=History").click();
  await (await inner(page, "form.filter")).locator("h1").waitFor();
  await page.waitForURL("**/history");
  found.mirrored = new URL(page.url()).pathname;
  await page.reload();
  found.reloaded = await (await inner(page, "form.filter")).locator("h1").textContent();
  return found;
}

// A session that ends while the tab is open: the page says it, and so does what a reload of the frame brings.
async function ended(page) {
  const frame = await inner(page, "header nav");
  await page.waitForLoadState("networkidle"); // Airflow's own page leaves for the login where a request of its own is refused
  await page.context().clearCookies();
  const line = frame.locator("[role=status]", { hasText: "Your session has ended" });
  await line.waitFor();
  const found = [(await line.textContent()).replace(/since .*?[AP]M/, "since TIME"), await frame.locator("form.filter").count()];
  await frame.locator("body").evaluate(() => { setTimeout(() => location.reload()); });
  await frame.locator("main", { hasText: "sign in" }).waitFor();
  return [...found, await frame.locator("h1").textContent()];
}

const found = {};
for (let first = 0; first < users.length; first += 2) {
  const page = await (await browser.newContext({ viewport: { width: 1400, height: 900 }, locale: "en-US" })).newPage();
  page.setDefaultTimeout(240_000);
  const seen = { ...(await signedIn(page, users[first], users[first + 1])), ...(await tabs(page)) };
  if (first === 0) Object.assign(seen, await links(page), { ended: await ended(page) });
  found[users[first]] = seen;
}
await browser.close();
console.log(JSON.stringify(found));
