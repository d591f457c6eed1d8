// Reports in Chromium, opened as files: one run, several, a sweep, and a run with 100,000 points; light, dark, phone and print. They
// request nothing, no text of a run becomes markup, and the plots are there with and without uPlot.
import assert from 'node:assert/strict';
import {readFileSync, writeFileSync} from 'node:fs';
import {pathToFileURL} from 'node:url';
import {browser, fits, shoot, until} from './browser.mjs';

async function open(file, options) {
  const context = await browser.newContext(options), page = await context.newPage(), faults = [], url = pathToFileURL(file).href;
  page.setDefaultTimeout(30000);
  page.on('console', m => { if (m.type() === 'error' || m.type() === 'warning') faults.push(m.text()); });
  page.on('pageerror', e => faults.push(String(e)));
  page.on('request', r => { if (r.url() !== url) faults.push('requested ' + r.url()); });
  await page.goto(url);
  await until(page, () => document.body.dataset.drawn === '1');
  return {context, page, faults};
}

const DESKTOP = {viewport: {width: 1280, height: 900}}, PHONE = {viewport: {width: 390, height: 844}, isMobile: true, hasTouch: true};
const DARK = {...DESKTOP, colorScheme: 'dark'}, drawn = process.env.UPLOT ? '.uplot canvas' : 'svg polyline';
const reports = {one: 'one.html', several: 'several.html', sweep: 'sweeps/small/report.html', long: 'long.html'};
const count = (page, selector) => page.locator(selector).count();
const texts = (page, selector) => page.locator(selector).allTextContents();

try {
  // One run: title, sentence, curves on every axis, marks, tables with bars, the command.
  let {context, page, faults} = await open(reports.one, DESKTOP);
  assert.equal(await page.textContent('h1'), 'one <img src=x>');
  assert.equal(await page.title(), 'one <img src=x> – muster report');
  assert.equal(await count(page, 'main img'), 0, 'a name became markup');
  assert.match(await page.textContent('#verdict .verdict'), /time/);
  assert.ok(await count(page, '#verdict .bar span') >= 1);
  assert.ok((await texts(page, '#curves figcaption')).includes('Test error'));
  assert.equal(await count(page, '#curves ' + drawn), await count(page, '#curves figure'));
  const legend = () => page.locator('#curves .legend').first().textContent();
  const before = await legend();
  for (const x of ['steps', 'rows', 'time']) {
    await page.click(`[data-x="${x}"]`);
    assert.equal(await page.getAttribute(`[data-x="${x}"]`, 'aria-pressed'), 'true');
    assert.ok(await count(page, '#curves ' + drawn) >= 3);
  }
  await page.click('[data-log="1"]');
  assert.ok(await count(page, '#curves ' + drawn) >= 3);
  await page.click('[data-log="0"]');
  assert.equal(await legend(), before);
  assert.ok(await count(page, '#time tbody .bar') >= 1);
  assert.match(await page.textContent('#configuration pre'), /^muster train train.cache/);
  assert.deepEqual(await texts(page, 'nav a'), ['Bottleneck', 'Curves', 'Time', 'Resources', 'Hosts over time', 'Processes over time', 'Configuration']);
  // Paper: everything is unfolded but files, and plots are SVG.
  await page.emulateMedia({media: 'print'});
  await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
  assert.equal(await count(page, 'details:not(.raw):not([open])'), 0);
  assert.equal(await count(page, 'canvas'), 0);
  assert.ok(await count(page, '#curves svg polyline') >= 3);
  assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector('.tools')).display), 'none');
  await page.evaluate(() => dispatchEvent(new Event('afterprint')));
  assert.equal(await count(page, 'details[open]'), 0);
  // A gap extends over the points of other curves, and a logarithmic axis has its ticks at round values.
  if (process.env.UPLOT) {
    await page.evaluate(() => {
      const Base = uPlot;
      window.uPlot = function (...words) { return window.made = new Base(...words); };
      window.uPlot.join = Base.join;
      Plot.make(document.querySelector('#curves .plots'), 'test').set({title: 'Test', x: 'count', unit: 'plain', logX: true, series: [
        {label: 'a', colour: 0, x: [1e6, 3e6, 1e8, 1e9], y: [1, null, 3, 4]}, {label: 'b', colour: 1, x: [2e6, 4e6, 2e8, 5e8], y: [1, 2, 3, 4]}]}, {});
    });
    await until(page, () => window.made && window.made.axes[0]._splits);
    assert.deepEqual(await page.evaluate(() => window.made.data[1].map(v => v === undefined ? '-' : v)), [1, null, null, null, 3, '-', '-', 4]);
    assert.deepEqual(await page.evaluate(() => window.made.axes[0]._splits), [1e6, 1e7, 1e8, 1e9]);
  }
  assert.deepEqual(faults, []);
  await context.close();

  // Several: the comparison, a table of runs that scrolls beyond 40, boxes that hide curves.
  ({context, page, faults} = await open(reports.several, DESKTOP));
  assert.match(await page.textContent('#head .verdict'), /was the fastest/);
  assert.equal(await count(page, '#head tbody tr'), 41);
  assert.equal(await page.evaluate(() => { const e = document.querySelector('#head .scroll'); return e.scrollHeight > e.clientHeight; }), true);
  const curves = () => page.evaluate(() => document.querySelector('#curves .legend').children.length);
  assert.equal(await curves(), 12);
  for (let i = 0; i < 39; i++) await page.locator('#curves input').nth(i).uncheck();
  assert.equal(await curves(), 2);
  assert.deepEqual(faults, []);
  await context.close();

  // A sweep: results, and curves against batch sizes with a curve for each mode.
  ({context, page, faults} = await open(reports.sweep, DESKTOP));
  assert.equal(await page.textContent('h1'), 'Sweep small');
  assert.equal(await count(page, '#results tbody tr'), 4);
  assert.equal(await page.textContent('#by-batch h2'), 'Against batch size');
  assert.deepEqual(await texts(page, '#by-batch .runs label'), ['sync', 'async']);
  assert.ok((await texts(page, '#by-batch figcaption')).includes('training time'));
  assert.equal(await count(page, '#by-batch ' + drawn) >= 5, true);
  assert.deepEqual(faults, []);
  await context.close();

  // 100,000 points: a band of at most 600 points, drawn quickly.
  const begun = Date.now();
  ({context, page, faults} = await open(reports.long, DESKTOP));
  assert.ok(Date.now() - begun < 10000);
  const series = await page.evaluate(() => JSON.parse(document.getElementById('data').textContent).sections.find(s => s.id === 'curves')
    .blocks.find(b => b.kind === 'plots').plots.find(p => p.title === 'Training loss').series[0]);
  assert.equal(series.x.length, 600);
  assert.ok(series.band && series.low.every((v, i) => v <= series.high[i]));
  assert.deepEqual(faults, []);
  await context.close();

  // Every report: dark, on a phone, without uPlot.
  for (const [name, file] of Object.entries(reports)) {
    for (const [mode, options] of [['light', DESKTOP], ['dark', DARK], ['phone', PHONE]]) {
      ({context, page, faults} = await open(file, options));
      await shoot(page, `${name}-${mode}`);
      await fits(page);
      if (mode === 'dark') assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(16, 19, 23)');
      assert.deepEqual(faults, []);
      await context.close();
    }
    // Without uPlot: its name is hidden from the page's script, and the policy with its hash is dropped.
    const plain = file.replace('.html', '-plain.html');
    writeFileSync(plain, readFileSync(file, 'utf8').replace(/<meta http-equiv[^>]*>/, '').replace("'use strict';\nvar Plot", "'use strict';\nuPlot = undefined;\nvar Plot")
      .replace('var uPlot=', 'uPlot='));
    ({context, page} = await open(plain, DESKTOP));
    if (process.env.UPLOT) assert.equal(await page.evaluate(() => typeof uPlot), 'undefined');
    assert.ok(await count(page, '.plots svg polyline') >= 3);
    await shoot(page, `${name}-plain`);
    await context.close();
  }
} finally {
  await browser.close();
}
