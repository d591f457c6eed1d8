/* The page of muster dash: follows /events and draws what it is told.
 *
 * Design: events fill a model (runs, each with a view and tables of points); at most twice a second the page is patched
 * from the model. Sections are described by h() and patched in place, so that focus, selection and scrolling stay. Every
 * text goes in as text: nothing that a run wrote can become markup. */
'use strict';
(function () {
  var COLOURS = 8, SHOWN = 8; /* runs whose curves are shown at first */
  var f = Plot.format;
  var runs = new Map(), board = {notes: [], roots: []}, chosen = null, byUser = false;
  var shown = new Map(), axis = 't', log = false, linked = false, heardAt = 0, dirty = false, drawnAt = 0;

  function $(id) { return document.getElementById(id); }

  /* ---- patching ---- */

  /* A description of an element: attributes with a leading $ are style properties; a key keeps an element with its thing. */
  function h(tag, attributes) {
    return {tag: tag, attributes: attributes || {}, children: [].slice.call(arguments, 2).flat(3).filter(function (c) {
      return c !== null && c !== undefined && c !== false && c !== '';
    })};
  }

  function setAttributes(e, wanted) {
    for (var key in wanted) {
      var v = wanted[key];
      if (key[0] === '$') { if (e.style.getPropertyValue(key.slice(1)) !== v) e.style.setProperty(key.slice(1), v); }
      else if (key === 'checked') { if (e.checked !== v) e.checked = v; }
      else if (e.getAttribute(key) !== String(v)) e.setAttribute(key, v);
    }
    for (var i = e.attributes.length; i > 0; i--) {
      var name = e.attributes[i - 1].name;
      if (!(name in wanted) && name !== 'style' && name !== 'open') e.removeAttribute(name);
    }
  }

  function create(d) {
    if (typeof d !== 'object') return document.createTextNode(d);
    var e = document.createElement(d.tag);
    patch(e, d);
    return e;
  }

  function patchChildren(e, wanted) {
    for (var i = 0; i < wanted.length; i++) {
      var d = wanted[i], have = e.childNodes[i];
      if (!have) e.appendChild(create(d));
      else if (typeof d !== 'object') {
        if (have.nodeType !== 3) e.replaceChild(create(d), have);
        else if (have.data !== String(d)) have.data = d;
      } else if (have.nodeType === 1 && have.localName === d.tag) patch(have, d);
      else e.replaceChild(create(d), have);
    }
    while (e.childNodes.length > wanted.length) e.removeChild(e.lastChild);
  }

  function patch(e, d) {
    setAttributes(e, d.attributes);
    patchChildren(e, d.children);
  }

  function fill(id, children) {
    var e = $(id);
    children = children.filter(Boolean);
    e.hidden = children.length === 0;
    patchChildren(e, children);
  }

  /* ---- the model ---- */

  function ordered() {
    return Array.from(runs.values()).sort(function (a, b) {
      var live = (b.view.state === 'live') - (a.view.state === 'live');
      return live || (b.view.begin || 0) - (a.view.begin || 0) || b.id - a.id;
    });
  }

  function run() {
    if (!runs.has(chosen)) { chosen = null; byUser = false; }
    if (!byUser) { var first = ordered()[0]; chosen = first ? first.id : null; }
    return chosen === null ? null : runs.get(chosen);
  }

  function isShown(r) {
    if (shown.has(r.id)) return shown.get(r.id);
    return r.id === chosen || ordered().indexOf(r) < SHOWN;
  }

  function takeRun(view) {
    var r = runs.get(view.id);
    if (!r) {
      r = {id: view.id, tables: new Map(), colour: runs.size % COLOURS, dash: runs.size >= COLOURS};
      runs.set(view.id, r);
    }
    r.view = view;
  }

  function takePoints(message) {
    var r = runs.get(message.id), p = message.points;
    if (!r) return;
    var t = r.tables.get(p.table);
    if (!t || p.from === 0 || p.from > t.data[0].length) {
      t = {columns: p.columns, data: p.data};
      r.tables.set(p.table, t);
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

  function tile(value, what, title) {
    return value === null ? null : h('div', {'class': 'tile', title: title || what}, h('b', {}, value), h('span', {}, what));
  }

  function known(v, show) { return v === undefined || v === null ? null : show(v); }
  function loss(v, odd) { return odd || known(v, f.plain); } /* odd: inf or nan */
  function cell(v, show) { return h('td', {'class': 'n'}, known(v, show) || '–'); }
  function percent(v) { return (v * 100).toFixed(v < 0.0995 && v > 0 ? 1 : 0) + '%'; }
  function perSecond(v) { return f.count(v); }
  function plural(n, word) { return n + ' ' + word + (n === 1 ? '' : 's'); }

  function clock(seconds) {
    var d = new Date(seconds * 1000), two = function (n) { return String(n).padStart(2, '0'); };
    return two(d.getHours()) + ':' + two(d.getMinutes()) + ':' + two(d.getSeconds());
  }

  function kind(v) {
    var words = [v.strategy, v.strategy === 'local' && !(v.threads > 1) ? null : v.mode].filter(Boolean).join(' ');
    return [v.model, words, v.workers > 0 ? plural(v.workers, v.strategy === 'allreduce' ? 'rank' : 'worker') : null, v.servers > 0 ? plural(v.servers, 'server') : null,
      v.batch > 0 ? 'batch ' + v.batch : null].filter(Boolean).join(' · ');
  }

  function swatch(r) { return h('i', {'class': r.dash ? 'swatch dash' : 'swatch', '$background': 'var(--c' + r.colour + ')'}); }

  /* ---- sections ---- */

  function drawRuns(current) {
    if (runs.size < 2) return fill('runs', []);
    var evaluated = ordered().some(function (r) { return r.view.accuracy !== undefined; });
    fill('runs', [h('h2', {}, plural(runs.size, 'run')), h('div', {'class': 'scroll'}, h('table', {},
      h('thead', {}, h('tr', {}, ['', 'run', 'state', 'what'].map(function (t) { return h('th', {}, t); }),
        ['done', 'rows/s', 'steps', 'time', 'train loss', evaluated ? 'test error' : null, evaluated ? 'best' : null]
          .filter(Boolean).map(function (t) { return h('th', {'class': 'n'}, t); }), h('th', {}, 'bottleneck'))),
      h('tbody', {}, ordered().map(function (r) {
        var v = r.view;
        return h('tr', {'class': r === current ? 'pick chosen' : 'pick', 'data-run': r.id},
          h('td', {}, h('input', {type: 'checkbox', 'data-show': r.id, checked: isShown(r), 'aria-label': 'show the curves of ' + v.name})),
          h('th', {'class': 'name', title: v.path}, swatch(r), h('button', {'data-choose': r.id}, v.name)), h('td', {}, pill(v.state)),
          h('td', {}, kind(v)), cell(v.share_done, percent), cell(v.rows_per_s, perSecond), cell(v.steps, f.count), cell(v.train_s, f.seconds),
          h('td', {'class': 'n'}, loss(v.train_loss, v.train_loss_text) || '–'), evaluated ? cell(v.accuracy, function (a) { return f.share(1 - a); }) : null,
          evaluated ? cell(v.best_accuracy, function (a) { return f.share(1 - a); }) : null,
          h('td', {}, v.verdict ? v.verdict.bottleneck : ''));
      }))))]);
  }

  function drawHead(r) {
    if (!r) return fill('head', []);
    var v = r.view, set = v.set === 'valid' ? 'validation' : 'test';
    fill('head', [
      h('div', {'class': 'title'}, h('h1', {}, v.name), pill(v.state), v.state !== 'live' && v.end_text ? h('span', {'class': 'sub'}, v.end_text) : null),
      h('p', {'class': 'sub'}, [kind(v), v.data ? 'on ' + v.data : null, v.host ? 'at ' + v.host : null,
        v.begin ? 'since ' + new Date(v.begin * 1000).toLocaleString() : null].filter(Boolean).join(' · ')),
      v.state === 'live' && v.share_done !== undefined ? h('div', {'class': 'progress', role: 'progressbar', 'aria-valuemin': 0, 'aria-valuemax': 100,
        'aria-valuenow': Math.round(v.share_done * 100)}, h('span', {'$width': (v.share_done * 100).toFixed(2) + '%'})) : null,
      v.state === 'live' && v.share_done !== undefined ? h('p', {'class': 'sub'}, percent(v.share_done) + ' done' +
        (v.left_s !== undefined ? ', about ' + f.seconds(v.left_s) + ' left' : '')) : null,
      h('div', {'class': 'tiles'},
        tile(known(v.rows_per_s, perSecond), v.state === 'live' ? 'rows a second, now' : 'rows a second'),
        tile(known(v.steps_per_s, perSecond), v.state === 'live' ? 'steps a second, now' : 'steps a second'),
        tile(loss(v.train_loss, v.train_loss_text), 'training loss'),
        tile(loss(v.loss, v.loss_text), set + ' loss', 'best: ' + (known(v.best_loss, f.plain) || '–')),
        tile(known(v.accuracy, function (a) { return f.share(1 - a); }), set + ' error', 'best: ' + known(v.best_accuracy, function (a) { return f.share(1 - a); })),
        tile(known(v.auc, f.plain), set + ' AUC'),
        tile(known(v.waits, percent), 'of the time waits'),
        tile(known(v.train_s, f.seconds), 'of training'),
        tile(known(v.rows, f.count), 'rows'),
        tile(known(v.peak_memory, f.bytes), 'most memory')),
      v.notes.map(function (n) { return h('p', {'class': 'note'}, n); })
    ].flat());
  }

  /* Words and colours as in the report (src/report/verdict.h, report_tables.c). */
  var PARTS = [['compute', 'computing', '--c0'], ['server-network', 'network at the servers', '--c1'],
    ['worker-network', 'network at the workers', '--c2'], ['server-cpu', 'work of the servers', '--c3'], ['input', 'parsing of input', '--c4'],
    ['disk', 'disk', '--c5'], ['stragglers', 'slow workers', '--c6'], ['synchronisation', 'round trips and barriers', '--c7'],
    ['evaluation', 'evaluation', '--bad'], ['cores', 'waiting for a core', '--c8']];

  function evidence(e) {
    var show = {share: percent, bytes: f.bytes, 'bytes/s': f.rate, s: f.seconds}[e.unit];
    return show ? show(e.value) : f.plain(e.value) + ' ' + e.unit;
  }

  function drawVerdict(r) {
    var v = r && r.view.verdict;
    if (!v) return fill('verdict', []);
    var fine = v.bottleneck === 'none' || v.bottleneck === 'compute';
    var parts = PARTS.map(function (p) { return {name: p[1], share: (v.shares || {})[p[0]] || 0, colour: p[2]}; })
      .filter(function (p) { return p.share >= 0.005; });
    fill('verdict', [
      h('h2', {}, r.view.state === 'live' ? 'The bottleneck, so far' : 'The bottleneck'),
      h('p', {'class': fine ? 'verdict fine' : 'verdict'}, v.sentence),
      parts.length ? h('div', {'class': 'bar', role: 'img', 'aria-label': 'shares of the time'}, parts.map(function (p) {
        return h('span', {title: p.name + ' ' + percent(p.share), '$width': (p.share * 100).toFixed(2) + '%', '$background': 'var(' + p.colour + ')'});
      })) : null,
      parts.length ? h('div', {'class': 'keys'}, parts.map(function (p) {
        return h('span', {}, h('i', {'class': 'swatch', '$background': 'var(' + p.colour + ')'}), p.name + ' ', h('b', {}, percent(p.share)));
      })) : null,
      (v.advice || []).length ? h('ul', {'class': 'advice'}, v.advice.map(function (a) {
        return h('li', {}, h('code', {}, a.change), ' ', h('span', {'class': 'gain'}, '×' + a.predicted_gain.toFixed(2)), ' ', a.text);
      })) : null,
      (v.evidence || []).length ? h('details', {}, h('summary', {}, 'evidence'), h('table', {}, h('tbody', {}, v.evidence.map(function (e) {
        return h('tr', {}, h('td', {}, e.what), h('td', {'class': 'n'}, evidence(e)));
      })))) : null
    ]);
  }

  var PHASES = {'computing': '--c0', 'preparing rows': '--c5', 'waiting for rows': '--c4', 'waiting for weights': '--c1', 'waiting for others': '--c7',
    'sending': '--c2', 'applying': '--c6', 'serving': '--c3', 'evaluating': '--bad', 'saving': '--c8'};

  function drawProcesses(r) {
    var list = r ? r.view.processes : [], live = r && r.view.state === 'live';
    if (!list.length) return fill('processes', []);
    var used = Object.keys(PHASES).filter(function (p) { return list.some(function (x) { return (x.phases[p] || 0) >= 0.005; }); });
    var stale = list.some(function (p) { return p.staleness_mean !== undefined; }), dropped = list.some(function (p) { return p.dropped_rows > 0; });
    fill('processes', [
      h('h2', {}, 'Processes', h('span', {'class': 'sub'}, live ? ' · of the last seconds' : ' · of the whole run')),
      h('div', {'class': 'scroll'}, h('table', {},
        h('thead', {}, h('tr', {}, ['process', 'state', 'host'].map(function (t) { return h('th', {}, t); }),
          ['CPU', 'memory', 'rows/s', 'waits'].map(function (t) { return h('th', {'class': 'n'}, t); }), h('th', {}, 'time goes to'),
          ['messages in', 'out', 'disk read', 'written', stale ? 'staleness' : null, dropped ? 'dropped' : null].filter(Boolean)
            .map(function (t) { return h('th', {'class': 'n'}, t); }))),
        h('tbody', {}, list.map(function (p) {
          return h('tr', {}, h('th', {title: 'pid ' + p.pid}, p.name), h('td', {}, pill(p.state)), h('td', {}, p.host || ''),
            cell(p.cpu, function (c) { return c.toFixed(2); }), cell(p.memory, f.bytes), cell(p.role === 'server' ? undefined : p.rows_per_s, perSecond),
            cell(p.role === 'server' ? undefined : p.waits, percent),
            h('td', {}, h('div', {'class': 'bar'}, used.map(function (name) {
              var share = p.phases[name] || 0;
              return h('span', {title: name + ' ' + percent(share), '$width': (share * 100).toFixed(2) + '%', '$background': 'var(' + PHASES[name] + ')'});
            }))),
            cell(p.bytes_in_per_s, f.rate), cell(p.bytes_out_per_s, f.rate), cell(p.disk_read_per_s, f.rate), cell(p.disk_write_per_s, f.rate),
            stale ? cell(p.staleness_mean, f.plain) : null, dropped ? cell(p.dropped_rows, f.count) : null);
        })))),
      h('div', {'class': 'keys'}, used.map(function (name) {
        return h('span', {}, h('i', {'class': 'swatch', '$background': 'var(' + PHASES[name] + ')'}), name);
      }), h('span', {}, h('i', {'class': 'swatch', '$background': 'var(--grid)'}), 'idle')),
      r.view.more_processes ? h('p', {'class': 'sub'}, 'and ' + r.view.more_processes + ' more') : null
    ]);
  }

  /* A begin and its end become one line. */
  function drawLog(r) {
    var marks = r ? r.view.marks : [], lines = [];
    marks.forEach(function (m) {
      var pair = /^(.*)_(begin|end)$/.exec(m.kind || '');
      var before = pair && pair[2] === 'end' ? lines.find(function (l) { return l.kind === pair[1] && l.took === null; }) : null;
      if (before) before.took = m.time - before.time;
      else lines.unshift({time: m.time, process: m.process, kind: pair ? pair[1] : m.kind, text: m.text, took: pair && pair[2] === 'begin' ? null : undefined});
    });
    fill('log', lines.length ? [h('h2', {}, 'What happened'), h('ul', {'class': 'log'}, lines.map(function (l) {
      return h('li', {'class': l.kind || ''}, h('span', {'class': 'at', title: new Date(l.time * 1000).toLocaleString()}, clock(l.time)),
        h('span', {'class': 'who'}, l.process || ''), h('span', {}, h('b', {}, l.kind || ''), l.text ? ' ' + l.text : '',
          l.took > 0 ? ', ' + f.seconds(l.took) : l.took === null ? ' …' : ''));
    }))] : []);
  }

  /* ---- plots ---- */

  var plots = [];

  function add(id, options) {
    var plot = Plot.make($(id), options);
    plots.push(plot);
    return plot;
  }

  var curves = [], uses = [];

  function setUp() {
    [['error', 'share', 'Error', 'accuracy'], ['loss', 'plain', 'Loss', 'loss'], ['auc', 'plain', 'Area under the ROC curve', 'auc'],
      ['top5', 'share', 'Error, best of five', 'top5']].forEach(function (c) {
      curves.push({plot: add('curve-plots', {title: c[2], unit: c[1]}), name: c[0], column: c[3], evaluated: true});
    });
    curves.push({plot: add('curve-plots', {title: 'Training loss', unit: 'plain'}), name: 'train_loss', column: 'train_loss'});
    curves.push({plot: add('curve-plots', {title: 'Learning rate', unit: 'plain'}), name: 'lr', column: 'lr'});
    curves.push({plot: add('curve-plots', {title: 'Rows a second', unit: 'count', zero: true}), name: 'rows_per_s', column: 'rows'});
    [['CPU, cores', 'cores', 'r', ['cpu']], ['Memory', 'bytes', 'r', ['memory']], ['Rows a second', 'count', 's', ['rows']],
      ['Waiting, share of the time', 'share', 's', ['waits']], ['Messages in', 'rate', 's', ['bytes_in']], ['Messages out', 'rate', 's', ['bytes_out']],
      ['Disk read', 'rate', 'r', ['disk_read']], ['Disk written', 'rate', 'r', ['disk_write']],
      ['Hosts: CPU, cores', 'cores', 'r', ['host_cpu'], true], ['Hosts: network in', 'rate', 'r', ['host_net_in'], true],
      ['Hosts: network out', 'rate', 'r', ['host_net_out'], true]].forEach(function (u) {
      uses.push({plot: add('use-plots', {title: u[0], unit: u[1], zero: true}), table: u[2], column: u[3][0], hosts: u[4]});
    });
  }

  /* Rows a second between points that are half a second of training apart, at least. */
  function rates(r) {
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

  function curve(r, c, set) {
    var table = c.evaluated ? 'eval/' + set : 'train';
    if (c.name === 'rows_per_s') return rates(r);
    var x = column(r, table, axis), y = column(r, table, c.column);
    if (!x || !y) return null;
    if (c.name === 'error' || c.name === 'top5') y = y.map(function (v) { return v === null ? null : 1 - v; });
    return {x: x, y: y};
  }

  function constant(series) {
    return series.every(function (s) { return s.y.every(function (v) { return v === s.y[0]; }); });
  }

  function drawCurves() {
    var list = ordered().filter(isShown).reverse(), any = false;
    curves.forEach(function (c) {
      var series = [];
      list.forEach(function (r) {
        (c.evaluated ? ['test', 'valid'] : ['']).forEach(function (set, k) {
          var data = curve(r, c, set);
          if (!data || !data.y.some(function (v) { return v !== null; })) return;
          var one = runs.size === 1;
          series.push({label: one ? set || c.name.replace(/_/g, ' ').replace('per s', 'a second') : r.view.name + (k ? ', ' + set : ''),
            colour: one && k ? '--c1' : '--c' + r.colour, dash: r.dash || (!one && k > 0), x: data.x, y: data.y});
        });
      });
      if (c.name === 'lr' && constant(series)) series = [];
      any = c.plot.set(series, log, axis) || any;
    });
    $('curves').hidden = !any;
  }

  function waits(r, p) {
    var a = column(r, 's/' + p, 'pull_wait'), b = column(r, 's/' + p, 'barrier_wait'), c = column(r, 's/' + p, 'read');
    return a && a.map(function (v, i) { return v === null ? null : v + (b[i] || 0) + (c[i] || 0); });
  }

  function drawUse(r) {
    var any = false;
    uses.forEach(function (u) {
      var series = [], hosts = {};
      (r ? r.view.processes : []).slice(0, 32).forEach(function (p, i) {
        var table = u.table + '/' + p.name, x = column(r, table, 't'), label = u.hosts ? p.host : p.name;
        if (!x || (u.hosts && (!p.host || hosts[p.host]))) return;
        if (p.role === 'server' && (u.column === 'rows' || u.column === 'waits')) return;
        hosts[p.host] = true;
        var y = u.column === 'waits' ? waits(r, p.name) : column(r, table, u.column);
        if (!y || !y.some(function (v) { return v > 0; })) return;
        series.push({label: label, colour: '--c' + i % COLOURS, dash: i >= COLOURS, x: x, y: y});
      });
      any = u.plot.set(series, false, 't') || any;
    });
    $('use').hidden = !any;
  }

  /* ---- drawing ---- */

  function drawLink() {
    var e = $('link'), quiet = (Date.now() - heardAt) / 1000;
    e.className = 'link ' + (!linked ? 'off' : quiet < 4 ? 'on' : '');
    e.textContent = !linked ? (heardAt ? 'muster dash has ended or cannot be reached' : 'connecting') : quiet < 4 ? 'following' : 'no news for ' + f.seconds(Math.round(quiet));
  }

  function draw() {
    dirty = false;
    drawnAt = Date.now();
    drawLink();
    var r = run(), live = ordered().filter(function (x) { return x.view.state === 'live'; }).length;
    $('summary').textContent = runs.size ? plural(runs.size, 'run') + (live ? ', ' + live + ' live' : '') : '';
    document.title = r ? r.view.name + (r.view.state === 'live' ? ' · ' + percent(r.view.share_done || 0) : ' · ' + r.view.state) + ' – muster' : 'muster dash';
    fill('notes', board.notes.map(function (n) { return h('p', {'class': 'note'}, n); }));
    drawRuns(r);
    drawHead(r);
    drawVerdict(r);
    drawCurves();
    drawProcesses(r);
    drawUse(r);
    drawLog(r);
    $('foot').textContent = 'muster ' + (board.version || '') + ' · ' + board.roots.join(', ') + ' · reads files only';
    document.body.dataset.drawn = String(runs.size);
  }

  function soon() {
    if (dirty) return;
    dirty = true;
    setTimeout(function () { requestAnimationFrame(draw); }, Math.max(0, drawnAt + 500 - Date.now()));
  }

  /* ---- events ---- */

  function listen() {
    var source = new EventSource('/events');
    function on(name, take) {
      source.addEventListener(name, function (e) {
        linked = true;
        heardAt = Date.now();
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
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
    };
  }

  function press(buttons, on) {
    buttons.forEach(function (b) { b.setAttribute('aria-pressed', b === on ? 'true' : 'false'); });
  }

  document.addEventListener('click', function (e) {
    var b = e.target.closest('[data-x],[data-log],[data-show],[data-choose],[data-run]');
    if (!b) return;
    if (b.dataset.x) {
      axis = b.dataset.x;
      press(document.querySelectorAll('[data-x]'), b);
    } else if (b.dataset.log) {
      log = b.dataset.log === '1';
      press(document.querySelectorAll('[data-log]'), b);
    } else if (b.dataset.show) {
      shown.set(Number(b.dataset.show), b.checked);
    } else {
      chosen = Number(b.dataset.choose || b.dataset.run);
      byUser = true;
    }
    drawnAt = 0;
    soon();
  });

  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', function () {
    plots.forEach(function (p) { p.restyle(); });
  });

  setUp();
  setInterval(drawLink, 1000);
  listen();
})();
