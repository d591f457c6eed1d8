/* Live runs: follows /events and makes the document of the page (page.js) from what arrives.
 *
 * Events fill a model (runs, each with a view and tables of points); at most twice a second the page is drawn from the model. */
'use strict';
if (!Page.isReport) (function () {
  var COLOURS = 8, SHOWN = 8; /* runs whose curves are shown at first */
  var f = Plot.format, h = Page.h, $ = Page.$, percent = Page.percent, view = Page.view;
  var runs = new Map(), board = {notes: [], roots: [], causes: [], phases: []}, chosen = null, byUser = false;
  var shown = new Map(), linked = false, newestAt = 0, dirty = false, drawnAt = 0;

  /* ---- the model ---- */

  function ordered() {
    return Array.from(runs.values()).sort(function (a, b) {
      var live = (b.view.state === 'live') - (a.view.state === 'live');
      return live || (b.view.begin || 0) - (a.view.begin || 0) || b.id - a.id;
    });
  }

  function chosenRun() {
    if (!runs.has(chosen)) { chosen = null; byUser = false; }
    if (!byUser) { var first = ordered()[0]; chosen = first ? first.id : null; }
    return chosen === null ? null : runs.get(chosen);
  }

  function isShown(r) {
    if (shown.has(r.id)) return shown.get(r.id);
    return r.id === chosen || ordered().indexOf(r) < SHOWN;
  }

  function takeRun(v) {
    var r = runs.get(v.id);
    if (!r) {
      r = {id: v.id, tables: new Map(), colour: runs.size % COLOURS, dash: runs.size >= COLOURS};
      runs.set(v.id, r);
    }
    r.view = v;
  }

  function takePoints(message) {
    var r = runs.get(message.id), p = message.points;
    if (!r) return;
    var t = r.tables.get(p.table);
    if (!t || p.from === 0 || p.from > t.data[0].length) {
      r.tables.set(p.table, {columns: p.columns, data: p.data});
      return;
    }
    t.data = t.data.map(function (old, k) { return old.slice(0, p.from).concat(p.data[k]); });
  }

  function column(r, table, name) {
    var t = r.tables.get(table), k = t ? t.columns.indexOf(name) : -1;
    return k < 0 ? null : t.data[k];
  }

  /* ---- words ---- */

  function pill(state) { return h('span', {'class': 'pill ' + state}, state); }
  function known(v, show) { return v === undefined || v === null ? null : show(v); }
  function loss(v, odd) { return odd || known(v, f.plain); } /* odd: inf or nan */
  function figure(v, show) { return known(v, show) || '–'; }
  function error(accuracy) { return f.share(1 - accuracy); }
  function plural(n, word) { return n + ' ' + word + (n === 1 ? '' : 's'); }
  function tile(value, what, title) { return value === null ? null : [value, what, title]; }

  function clock(seconds) {
    var d = new Date(seconds * 1000), two = function (n) { return String(n).padStart(2, '0'); };
    return two(d.getHours()) + ':' + two(d.getMinutes()) + ':' + two(d.getSeconds());
  }

  function kind(v) {
    var words = [v.strategy, v.strategy === 'local' && !(v.threads > 1) ? null : v.mode].filter(Boolean).join(' ');
    return [v.model, words, v.workers > 0 ? plural(v.workers, v.strategy === 'allreduce' ? 'rank' : 'worker') : null,
      v.servers > 0 ? plural(v.servers, 'server') : null, v.batch > 0 ? 'batch ' + v.batch : null].filter(Boolean).join(' · ');
  }

  function numbers(titles) { return titles.filter(Boolean).map(function (t) { return {title: t, number: true}; }); }
  function words(titles) { return titles.map(function (t) { return {title: t}; }); }
  function node(n) { return {kind: 'node', node: n}; }
  function note(text) { return {kind: 'text', 'class': 'note', text: text}; }

  /* ---- sections ---- */

  function runsBlocks(current) {
    if (runs.size < 2) return [];
    var evaluated = ordered().some(function (r) { return r.view.accuracy !== undefined; });
    return [{kind: 'table', head: 1,
      columns: words(['', 'run', 'state', 'what']).concat(numbers(['done', 'rows/s', 'steps', 'time', 'train loss', evaluated && 'test error', evaluated && 'best']), words(['bottleneck'])),
      rows: ordered().map(function (r) {
        var v = r.view;
        return {attributes: {'class': r === current ? 'pick chosen' : 'pick', 'data-run': r.id}, cells: [
          h('input', {type: 'checkbox', 'data-show': r.id, checked: isShown(r), 'aria-label': 'show the curves of ' + v.name}),
          h('span', {'class': 'name', title: v.path}, Page.swatch('--c' + r.colour, r.dash), h('button', {'data-choose': r.id}, v.name)),
          pill(v.state), kind(v), figure(v.share_done, percent), figure(v.rows_per_s, f.count), figure(v.steps, f.count), figure(v.train_s, f.seconds),
          loss(v.train_loss, v.train_loss_text) || '–'].concat(evaluated ? [figure(v.accuracy, error), figure(v.best_accuracy, error)] : [],
          v.verdict ? v.verdict.bottleneck : '')};
      })}];
  }

  function headBlocks(r) {
    if (!r) return [];
    var v = r.view, set = v.set === 'valid' ? 'validation' : 'test', live = v.state === 'live', done = live && v.share_done !== undefined;
    return [
      node(h('div', {'class': 'title'}, h('h1', {}, v.name), pill(v.state), !live && v.end_text ? h('span', {'class': 'sub'}, v.end_text) : null)),
      {kind: 'text', 'class': 'sub', text: [kind(v), v.data ? 'on ' + v.data : null, v.host ? 'at ' + v.host : null,
        v.begin ? 'since ' + new Date(v.begin * 1000).toLocaleString() : null].filter(Boolean).join(' · ')},
      done && node(h('div', {'class': 'progress', role: 'progressbar', 'aria-valuemin': 0, 'aria-valuemax': 100,
        'aria-valuenow': Math.round(v.share_done * 100)}, h('span', {'$width': (v.share_done * 100).toFixed(2) + '%'}))),
      done && {kind: 'text', 'class': 'sub', text: percent(v.share_done) + ' done' + (v.left_s !== undefined ? ', about ' + f.seconds(v.left_s) + ' left' : '')},
      {kind: 'tiles', tiles: [
        tile(known(v.rows_per_s, f.count), live ? 'rows per second, now' : 'rows per second'),
        tile(known(v.steps_per_s, f.count), live ? 'steps per second, now' : 'steps per second'),
        tile(loss(v.train_loss, v.train_loss_text), 'training loss'),
        tile(loss(v.loss, v.loss_text), set + ' loss', 'best: ' + figure(v.best_loss, f.plain)),
        tile(known(v.accuracy, error), set + ' error', 'best: ' + figure(v.best_accuracy, error)),
        tile(known(v.auc, f.plain), set + ' AUC'),
        tile(known(v.waits, percent), 'of the time waiting'),
        tile(known(v.train_s, f.seconds), 'of training'),
        tile(known(v.rows, f.count), 'rows'),
        tile(known(v.peak_memory, f.bytes), 'peak memory')]}
    ].concat(v.notes.map(note)).filter(Boolean);
  }

  function verdictBlocks(r) {
    var v = r && r.view.verdict;
    return v ? [{kind: 'verdict', verdict: v, causes: board.causes}] : [];
  }

  function processBlocks(r) {
    var list = r ? r.view.processes : [];
    if (!list.length) return [];
    var used = board.phases.filter(function (p) { return p[0] !== 'idle' && list.some(function (x) { return (x.phases[p[0]] || 0) >= 0.005; }); });
    var stale = list.some(function (p) { return p.staleness_mean !== undefined; }), dropped = list.some(function (p) { return p.dropped_rows > 0; });
    return [
      {kind: 'text', 'class': 'sub', text: r.view.state === 'live' ? 'over the last seconds' : 'over the whole run'},
      {kind: 'table',
        columns: words(['process', 'state', 'host']).concat(numbers(['CPU', 'memory', 'rows/s', 'waits']), words(['time']),
          numbers(['messages in', 'out', 'disk read', 'written', stale && 'staleness', dropped && 'dropped'])),
        rows: list.map(function (p) {
          var trains = p.role !== 'server';
          return [h('span', {title: 'pid ' + p.pid}, p.name), pill(p.state), p.host || '', figure(p.cpu, function (c) { return c.toFixed(2); }),
            figure(p.memory, f.bytes), figure(trains ? p.rows_per_s : null, f.count), figure(trains ? p.waits : null, percent),
            Page.bar(used.map(function (c) { return {title: c[0], share: p.phases[c[0]] || 0, colour: c[1]}; })),
            figure(p.bytes_in_per_s, f.rate), figure(p.bytes_out_per_s, f.rate), figure(p.disk_read_per_s, f.rate), figure(p.disk_write_per_s, f.rate)]
            .concat(stale ? figure(p.staleness_mean, f.plain) : [], dropped ? figure(p.dropped_rows, f.count) : []);
        })},
      node(h('div', {'class': 'keys'}, used.map(function (c) { return h('span', {}, Page.swatch('--p' + c[1]), c[0]); }),
        h('span', {}, Page.swatch('--grid'), 'idle'))),
      r.view.more_processes ? {kind: 'text', 'class': 'sub', text: 'and ' + r.view.more_processes + ' more'} : null
    ].filter(Boolean);
  }

  /* A begin and its end become one line. */
  function logBlocks(r) {
    var lines = [];
    (r ? r.view.marks : []).forEach(function (m) {
      var pair = /^(.*)_(begin|end)$/.exec(m.kind || '');
      var before = pair && pair[2] === 'end' ? lines.find(function (l) { return l.kind === pair[1] && l.took === null; }) : null;
      if (before) before.took = m.time - before.time;
      else lines.unshift({time: m.time, process: m.process, kind: pair ? pair[1] : m.kind, text: m.text, took: pair && pair[2] === 'begin' ? null : undefined});
    });
    return lines.length ? [node(h('ul', {'class': 'log'}, lines.map(function (l) {
      return h('li', {'class': l.kind || ''}, h('span', {'class': 'at', title: new Date(l.time * 1000).toLocaleString()}, clock(l.time)),
        h('span', {'class': 'who'}, l.process || ''), h('span', {}, h('b', {}, l.kind || ''), l.text ? ' ' + l.text : '',
          l.took > 0 ? ', ' + f.seconds(l.took) : l.took === null ? ' …' : ''));
    })))] : [];
  }

  /* ---- plots ---- */

  var AXES = {time: ['t', 'seconds'], steps: ['step', 'count'], rows: ['rows', 'count']};
  var CURVES = [
    {title: 'Error', unit: 'share', column: 'accuracy', evaluated: true, turned: true}, {title: 'Loss', unit: 'plain', column: 'loss', evaluated: true},
    {title: 'Area under the ROC curve', unit: 'plain', column: 'auc', evaluated: true},
    {title: 'Grouped AUC', unit: 'plain', column: 'grouped_auc', evaluated: true},
    {title: 'Normalised entropy', unit: 'plain', column: 'normalised_entropy', evaluated: true},
    {title: 'Calibration', unit: 'plain', column: 'calibration', evaluated: true},
    {title: 'Top-5 error', unit: 'share', column: 'top5', evaluated: true, turned: true},
    {title: 'Training loss', unit: 'plain', column: 'train_loss'}, {title: 'Learning rate', unit: 'plain', column: 'lr'},
    {title: 'Rows per second', unit: 'count', column: 'rows', zero: true}];
  var USES = [['CPU, cores', 'cores', 'r', 'cpu'], ['Memory', 'bytes', 'r', 'memory'], ['Rows per second', 'count', 's', 'rows'],
    ['Waiting, share of the time', 'share', 's', 'waits'], ['Messages in', 'rate', 's', 'bytes_in'], ['Messages out', 'rate', 's', 'bytes_out'],
    ['Disk read', 'rate', 'r', 'disk_read'], ['Disk written', 'rate', 'r', 'disk_write'], ['Hosts: CPU, cores', 'cores', 'r', 'host_cpu', true],
    ['Hosts: network in', 'rate', 'r', 'host_net_in', true], ['Hosts: network out', 'rate', 'r', 'host_net_out', true]];

  /* Rows per second between points that are at least half a second of training apart. */
  function rates(r, axis) {
    var t = column(r, 'train', 't'), rows = column(r, 'train', 'rows'), x = column(r, 'train', axis), out = {x: [], y: []};
    if (!t) return null;
    for (var i = 0, fromT = 0, fromRows = 0; i < t.length; i++) {
      if (t[i] - fromT < 0.5) continue;
      out.x.push(x[i]);
      out.y.push((rows[i] - fromRows) / (t[i] - fromT));
      fromT = t[i];
      fromRows = rows[i];
    }
    return out;
  }

  function curve(r, c, set, axis) {
    if (c.column === 'rows') return rates(r, axis);
    var table = c.evaluated ? 'eval/' + set : 'train', x = column(r, table, axis), y = column(r, table, c.column);
    if (!x || !y) return null;
    return {x: x, y: c.turned ? y.map(function (v) { return v === null ? null : 1 - v; }) : y};
  }

  function isConstant(series) {
    return series.every(function (s) { return s.y.every(function (v) { return v === s.y[0]; }); });
  }

  function curvePlots() {
    var list = ordered().filter(isShown).reverse(), axis = AXES[view.x], one = runs.size === 1;
    return CURVES.map(function (c) {
      var series = [];
      list.forEach(function (r) {
        (c.evaluated ? ['test', 'valid'] : ['']).forEach(function (set, k) {
          var data = curve(r, c, set, axis[0]);
          if (!data || !data.y.some(function (v) { return v !== null; })) return;
          series.push({label: one ? set || c.title.toLowerCase() : r.view.name + (k ? ', ' + set : ''),
            colour: one && k ? 1 : r.colour, dash: r.dash || (!one && k > 0), x: data.x, y: data.y});
        });
      });
      return {title: c.title, unit: c.unit, zero: c.zero, zeroX: true, x: axis[1], series: c.column === 'lr' && isConstant(series) ? [] : series};
    });
  }

  function waits(r, p) {
    var a = column(r, 's/' + p, 'pull_wait'), b = column(r, 's/' + p, 'barrier_wait'), c = column(r, 's/' + p, 'read');
    return a && a.map(function (v, i) { return v === null ? null : v + (b[i] || 0) + (c[i] || 0); });
  }

  function usePlots(r) {
    return USES.map(function (u) {
      var series = [], hosts = {};
      (r ? r.view.processes : []).slice(0, 32).forEach(function (p, i) {
        var table = u[2] + '/' + p.name, x = column(r, table, 't');
        if (!x || (u[4] && (!p.host || hosts[p.host])) || (p.role === 'server' && (u[3] === 'rows' || u[3] === 'waits'))) return;
        hosts[p.host] = true;
        var y = u[3] === 'waits' ? waits(r, p.name) : column(r, table, u[3]);
        if (y && y.some(function (v) { return v > 0; }))
          series.push({label: u[4] ? p.host : p.name, colour: i % COLOURS, dash: i >= COLOURS, x: x, y: y});
      });
      return {title: u[0], unit: u[1], zero: true, zeroX: true, linear: true, x: 'seconds', series: series};
    });
  }

  /* ---- drawing ---- */

  function drawLink() {
    var e = $('link'), quiet = (Date.now() - newestAt) / 1000;
    e.className = 'link ' + (!linked ? 'off' : quiet < 4 ? 'on' : '');
    e.textContent = !linked ? (newestAt ? 'muster dash has ended or cannot be reached' : 'connecting') : quiet < 4 ? 'following' : 'no data for ' + f.seconds(Math.round(quiet));
  }

  function draw() {
    dirty = false;
    drawnAt = Date.now();
    drawLink();
    var r = chosenRun(), live = ordered().filter(function (x) { return x.view.state === 'live'; }).length;
    $('summary').textContent = runs.size ? plural(runs.size, 'run') + (live ? ', ' + live + ' live' : '') : '';
    document.title = r ? r.view.name + (r.view.state === 'live' ? ' · ' + percent(r.view.share_done || 0) : ' · ' + r.view.state) + ' – muster' : 'muster dash';
    Page.show({
      sections: [
        {id: 'notes', blocks: board.notes.map(note)},
        {id: 'runs', title: plural(runs.size, 'run'), blocks: runsBlocks(r)},
        {id: 'head', blocks: headBlocks(r)},
        {id: 'verdict', title: r && r.view.state === 'live' ? 'Bottleneck so far' : 'Bottleneck', blocks: verdictBlocks(r)},
        {id: 'curves', title: 'Curves', blocks: [{kind: 'tools', x: true}, {kind: 'plots', plots: curvePlots()}]},
        {id: 'processes', title: 'Processes', blocks: processBlocks(r)},
        {id: 'use', title: 'Resources', blocks: [{kind: 'plots', plots: usePlots(r)}]},
        {id: 'log', title: 'Events', blocks: logBlocks(r)}],
      foot: 'muster ' + (board.version || '') + ' · ' + board.roots.join(', ') + ' · reads files only'});
    document.body.dataset.drawn = String(runs.size);
  }

  function soon() {
    if (dirty) return;
    dirty = true;
    setTimeout(function () { requestAnimationFrame(draw); }, Math.max(0, drawnAt + 500 - Date.now()));
  }

  /* ---- events ---- */

  function follow() {
    var source = new EventSource('/events');
    function on(name, take) {
      source.addEventListener(name, function (e) {
        linked = true;
        newestAt = Date.now();
        take(e.data);
        soon();
      });
    }
    on('begin', function () { runs.clear(); });
    on('board', function (d) { board = JSON.parse(d); });
    on('run', function (d) { takeRun(JSON.parse(d)); });
    on('points', function (d) { takePoints(JSON.parse(d)); });
    on('drop', function (d) { runs.delete(Number(d)); });
    source.onerror = function () {
      linked = false;
      drawLink();
      if (source.readyState === EventSource.CLOSED) setTimeout(follow, 3000);
    };
  }

  document.addEventListener('click', function (e) {
    var b = e.target.closest('[data-show],[data-choose],tr[data-run]');
    if (!b) return;
    if (b.dataset.show) shown.set(Number(b.dataset.show), b.checked);
    else {
      chosen = Number(b.dataset.choose || b.dataset.run);
      byUser = true;
    }
    draw();
  });

  Page.onChange(draw);
  document.querySelector('header').hidden = false;
  setInterval(drawLink, 1000);
  follow();
})();
