// People in Airflow's own UI who have a job do something on the page of its DAG. `node acts.mjs BASE DAG` answers each line of
// its input, as JSON: `sign-in` USER PASSWORD; `look` as USER at TAB of the job, and follow the link to ACT; `press` the button of what USER looks
// at, with the confirmation spoilt or not. Each answer has the heading, the text and the address of the page that is there then.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { BROWSER_LIBRARIES, BROWSER_MODULES, BROWSER_PROGRAM } = process.env;
const require = createRequire(`${BROWSER_MODULES}/`);
const { chromium } = require("playwright-core");

const [base, dag] = process.argv.slice(2);
const job = `${base}/cairn/dags/${dag}/jobs/${dag}`; // by its name, as programs ask for it
const browser = await chromium.launch({
  executablePath: BROWSER_PROGRAM,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
  env: { ...process.env, LD_LIBRARY_PATH: BROWSER_LIBRARIES },
  timeout: 240_000,
});
const frames = {}; // of the tab of each user

async function signIn({ user, password }) {
  const page = await (await browser.newContext({ viewport: { width: 1400, height: 900 } })).newPage();
  page.setDefaultTimeout(240_000);
  await page.goto(`${base}/dags/${dag}/plugin/checkpoints`);
  await page.waitForURL((url) => url.pathname.includes("login"));
  await page.fill("input[name=username]", user);
  await page.fill("input[name=password]", password);
  await page.keyboard.press("Enter");
  await page.waitForURL((url) => !url.pathname.includes("login"));
  await page.frameLocator("iframe").locator("main").waitFor();
  frames[user] = page.frame({ url: /\/cairn\// });
  return {};
}

const text = async (frame, selector) => (await frame.locator(selector).first().textContent()).replace(/\s+/g, " ").trim();

async function shown(frame) {
  const heading = await text(frame, (await frame.locator("main h2").count()) > 0 ? "main h2" : "h1");
  const operation = frame.locator("input[name=operation]");
  const id = (await operation.count()) > 0 ? await operation.inputValue() : "";
  return { heading, text: await text(frame, "main"), address: frame.url().replace(/.*\/jobs\/[^/?]+/, ""), operation: id };
}

async function look({ user, tab, act }) {
  const frame = frames[user];
  await frame.goto(`${job}${tab}`);
  await Promise.all([frame.waitForNavigation(), frame.locator(`a[href$="/interventions/${act}"]`).click()]);
  return shown(frame);
}

async function press({ user, spoilt }) {
  const frame = frames[user];
  if (spoilt) await frame.locator("input[name=confirmed]").evaluate((field) => (field.value = `${field.value.slice(0, -3)}xxx`));
  await Promise.all([frame.waitForNavigation(), frame.locator("main form button").click()]);
  return shown(frame);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { what, ...facts } = JSON.parse(line);
  console.log(JSON.stringify(await { "sign-in": signIn, look, press }[what](facts)));
}
await browser.close();
