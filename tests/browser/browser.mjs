// What the tests of the page share: the browser, waiting, pictures.
import assert from 'node:assert/strict';
import {chromium} from 'playwright-core';

const shots = process.env.MUSTER_SHOTS;
export const browser = await chromium.launch({executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-gpu']});

// Polls a condition; playwright's own waiting evaluates strings in the page, which its policy refuses.
export async function until(page, fn, argument) {
  for (const end = Date.now() + 30000; Date.now() < end;) {
    if (await page.evaluate(fn, argument)) return;
    await new Promise(done => setTimeout(done, 100));
  }
  throw new Error('not within 30 s: ' + fn);
}

export async function shoot(page, name) {
  if (!shots) return;
  await page.waitForTimeout(700);
  await page.screenshot({path: `${shots}/${name}.png`, fullPage: true});
}

export async function fits(page) {
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, 'the page is wider than the screen');
}
