// The page of muster dash in Chromium: it shows a live and a finished run and follows them, its buttons work, it requests nothing
// from other hosts, no text of a run becomes markup, and it fits a phone.
import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import {browser, fits, shoot, until} from './browser.mjs';

const url = process.argv[2], LIVE = 'live <img src=x>';

async function open(options, prepare) {
  const context = await browser.newContext(options), page = await context.newPage(), faults = [];
  page.setDefaultTimeout(30000);
  page.on('console', m => { if (m.type() === 'error' || m.type() === 'warning') faults.push(m.text()); });
  page.on('pageerror', e => faults.push(String(e)));
  page.on('request', r => { if (new URL(r.url()).origin !== new URL(url).origin) faults.push('asked ' + r.url()); });
  if (prepare) await prepare(page);
  await page.goto(url);
  await until(page, () => Number(document.body.dataset.drawn) >= 2);
  return {context, page, faults};
}

// The figures of the headline stay apart, long ones too.
async function tilesHold(page) {
  const wide = await page.evaluate(() => [...document.querySelectorAll('.tile b')].map(b => {
    b.textContent = '12 h 34 min';
    const text = document.createRange();
    text.selectNodeContents(b);
    return b.parentNode.getBoundingClientRect().right - text.getBoundingClientRect().right;
  }).filter(room => room < 0));
  assert.deepEqual(wide, [], 'a figure of the headline runs into the next one');
}

try {
  // A desktop.
  let {context, page, faults} = await open({viewport: {width: 1280, height: 900}});
  await until(page, () => document.querySelectorAll('#processes tbody tr').length === 3);
  assert.equal(await page.textContent('#head h1'), LIVE);
  assert.equal(await page.locator('main img').count(), 0, 'a name became markup');
  assert.equal(await page.textContent('#head .pill'), 'live');
  assert.match(await page.textContent('#processes'), /server-0.*worker-0.*worker-1/s);
  await until(page, () => /bottleneck/.test(document.querySelector('#verdict').textContent));
  await until(page, () => /join/.test(document.querySelector('#log').textContent));
  await until(page, () => /following/.test(document.querySelector('#link').textContent));
  if (process.env.UPLOT) {
    await until(page, () => document.querySelectorAll('#curves .plots .uplot canvas').length >= 3);
    await until(page, () => document.querySelectorAll('#use .plots .uplot canvas').length >= 3);
  }
  // It follows.
  const points = () => page.evaluate(() => document.querySelector('#head').textContent);
  const before = await points();
  await until(page, old => document.querySelector('#head').textContent !== old, before);
  // Axes.
  const errors = page.locator('#curves .plots figure').first();
  await page.click('[data-x="rows"]');
  assert.equal(await page.getAttribute('[data-x="rows"]', 'aria-pressed'), 'true');
  await page.click('[data-log="1"]');
  await page.waitForTimeout(700);
  await errors.waitFor({state: 'visible'});
  await page.click('[data-x="time"]');
  await page.click('[data-log="0"]');
  // A run less in the curves, and another one in full.
  await until(page, () => document.querySelector('#curves .plots .legend').children.length === 2);
  await page.locator('#runs tbody tr', {hasText: 'done'}).locator('input').uncheck();
  await until(page, () => document.querySelector('#curves .plots .legend').children.length === 1);
  await page.locator('#runs button', {hasText: 'done'}).click();
  await until(page, () => document.querySelector('#head h1').textContent === 'done');
  assert.equal(await page.textContent('#head .pill'), 'finished');
  await page.locator('#runs tbody tr', {hasText: 'done'}).locator('input').check();
  await page.locator('#runs button', {hasText: 'live'}).click();
  // One that begins while the page is open.
  const made = spawnSync(process.env.MUSTER, ['train', 'train.cache', '--run', 'runs/new', '--epochs', '1', '--quiet']);
  assert.equal(made.status, 0);
  await until(page, () => document.body.dataset.drawn === '3');
  await shoot(page, 'desktop');
  await fits(page);
  await page.locator('#runs button', {hasText: 'done'}).click(); // which is not drawn again meanwhile
  await until(page, () => document.querySelector('#head h1').textContent === 'done');
  for (const width of [1280, 1100, 1000, 820]) {
    await page.setViewportSize({width, height: 900});
    await tilesHold(page);
  }
  assert.deepEqual(faults, []);
  await context.close();

  // A phone, in the dark.
  ({context, page, faults} = await open({viewport: {width: 390, height: 844}, deviceScaleFactor: 2, isMobile: true, hasTouch: true}));
  await shoot(page, 'phone');
  await fits(page);
  await tilesHold(page);
  assert.deepEqual(faults, []);
  await context.close();
  ({context, page, faults} = await open({viewport: {width: 1280, height: 900}, colorScheme: 'dark'}));
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(16, 19, 23)');
  await shoot(page, 'dark');
  assert.deepEqual(faults, []);
  await context.close();

  // Without uPlot, lines are drawn all the same.
  ({context, page, faults} = await open({viewport: {width: 1000, height: 800}},
    p => p.route('**/uplot.js', r => r.fulfill({contentType: 'text/javascript', body: ''}))));
  await until(page, () => document.querySelectorAll('#curves .plots svg polyline').length >= 3);
  await shoot(page, 'plain');
  assert.deepEqual(faults, []);

  // The page outlives its server, and says so.
  process.kill(Number(process.env.DASH_PID));
  await until(page, () => /has ended or cannot be reached/.test(document.querySelector('#link').textContent));
  assert.equal(await page.textContent('#head h1'), LIVE);
  await context.close();
} finally {
  await browser.close();
}
