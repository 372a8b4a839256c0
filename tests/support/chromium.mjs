// A Chromium whose pages are patient: the machine may be busy.
import { createRequire } from "node:module";

const { BROWSER_LIBRARIES, BROWSER_MODULES, BROWSER_PROGRAM } = process.env;
const PATIENCE_MS = 240_000;

// Finds the modules that the tests' setup has installed.
export const require = createRequire(`${BROWSER_MODULES}/`);

// Starts it; `more` are arguments of Chromium.
export function launch(...more) {
  return require("playwright-core").chromium.launch({
    executablePath: BROWSER_PROGRAM,
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", ...more],
    env: { ...process.env, LD_LIBRARY_PATH: BROWSER_LIBRARIES },
    timeout: PATIENCE_MS,
  });
}

// Opens a page in a context of its own; `options` are the context's.
export async function opened(browser, options) {
  const page = await browser.newPage(options);
  page.setDefaultTimeout(PATIENCE_MS);
  return page;
}
