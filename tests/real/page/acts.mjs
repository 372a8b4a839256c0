// People in Airflow's own UI who have a job do something on the page of its DAG. `node acts.mjs BASE DAG` answers each line of
// its input, as JSON: `sign-in` USER PASSWORD; `look` as USER at TAB of the job, and follow the link to ACT; `press` the button of what USER looks
// at, with the confirmation spoilt or not. Each answer has the heading, the text and the address of the page that is there then.
import { createInterface } from "node:readline";
import { asked, signIn } from "../../support/airflow_ui.mjs";
import { launch, opened } from "../../support/chromium.mjs";

const [base, dag] = process.argv.slice(2);
const job = `${base}/cairn/dags/${dag}/jobs/${dag}`; // by its name, as programs ask for it
const browser = await launch();
const frames = {}; // of the tab of each user

async function enter({ user, password }) {
  const page = await opened(browser, { viewport: { width: 1400, height: 900 } });
  await asked(page, `${base}/dags/${dag}/plugin/checkpoints`);
  await signIn(page, user, password);
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
  console.log(JSON.stringify(await { "sign-in": enter, look, press }[what](facts)));
}
await browser.close();
