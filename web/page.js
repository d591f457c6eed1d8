/* The page: renders a document of sections and blocks, the same for a report, a sweep and live runs.
 *
 * A document is {title, sections: [{id, title, blocks}], foot}; src/report/page.h makes it for reports and live.js for runs that
 * are followed. Sections are described by h() and patched in place, so that focus, selection and scrolling stay. Every text is set
 * as text: nothing that a run wrote can become markup. */
'use strict';
var Page = (function () {
  var f = Plot.format, view = {x: 'time', log: false, hidden: new Set()}, current = null, containers = [];

  function $(id) { return document.getElementById(id); }

  /* ---- patching ---- */

  /* A description of an element. Attributes with a leading $ are style properties; keep: children are not touched. */
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
      } else if (have.nodeType === 1 && have.localName === d.tag && !have.plots === !d.keep) patch(have, d);
      else e.replaceChild(create(d), have);
    }
    while (e.childNodes.length > wanted.length) e.removeChild(e.lastChild);
  }

  function patch(e, d) {
    setAttributes(e, d.attributes);
    if (d.keep) e.plots = e.plots || [];
    else patchChildren(e, d.children);
  }

  /* ---- blocks ---- */

  function percent(v) { return (v * 100).toFixed(v < 0.0995 && v > 0 ? 1 : 0) + '%'; }

  function swatch(colour, dash) { return h('i', {'class': dash ? 'swatch dash' : 'swatch', '$background': 'var(' + colour + ')'}); }

  /* parts: [{title, share, colour}]; the rest of the bar is idle time. */
  function bar(parts) {
    return h('div', {'class': 'bar'}, parts.map(function (p) {
      return h('span', {title: p.title + ' ' + percent(p.share), '$width': (Math.min(p.share, 1) * 100).toFixed(2) + '%', '$background': 'var(--p' + p.colour + ')'});
    }));
  }

  function textBlock(b) { return h('p', b['class'] ? {'class': b['class']} : {}, b.label ? h('b', {}, b.label + ': ') : null, b.text); }

  function tiles(b) {
    return h('div', {'class': 'tiles'}, b.tiles.map(function (t) {
      return t && h('div', {'class': 'tile', title: t[2] || t[1]}, h('b', {}, t[0]), h('span', {}, t[1]));
    }));
  }

  function cellText(c) { return Array.isArray(c) ? c[0] : c; }

  /* Columns are {title, number, part}; a cell is text, [text, value], or a description. Values of columns with a part, the colour of
   * their share, also make a bar. */
  function table(b) {
    var parts = b.columns.map(function (c, k) { return {column: k, title: c.title, colour: c.part}; }).filter(function (p) { return p.colour !== undefined; });
    var width = b.columns.reduce(function (sum, c, k) {
      return sum + 3 + b.rows.reduce(function (most, row) {
        var text = cellText((row.cells || row)[k]);
        return Math.max(most, typeof text === 'string' ? Math.min(text.length, 32) : 0);
      }, 0);
    }, 0);
    function heading(c) {
      return h('th', {scope: 'col', 'class': c.number ? 'n' : 'w'}, c.part !== undefined ? swatch('--p' + c.part) : null, c.title);
    }
    function cell(c, k) {
      var text = cellText(c), node = typeof text === 'object' && text !== null;
      var attributes = {'class': b.columns[k].number ? 'n' : node || text.length <= 14 ? 'w' : text.length > 32 ? 'long' : 'mid'};
      if (k === b.head) attributes.scope = 'row';
      return h(k === (b.head || 0) ? 'th' : 'td', attributes, text);
    }
    function row(r) {
      var cells = (r.cells || r).map(cell);
      if (parts.length) cells.splice(1, 0, h('td', {'class': 'barcell'}, bar(parts.map(function (p) {
        return {title: p.title, colour: p.colour, share: r[p.column][1] || 0};
      }))));
      return h('tr', r.attributes || {}, cells);
    }
    var heads = b.columns.map(heading);
    if (parts.length) heads.splice(1, 0, h('th', {}, ''));
    return h('div', {'class': (width > 180 ? 'wide ' : '') + 'sheet'},
      b.title ? h('h3', {}, b.title) : null, b.note ? h('p', {'class': 'sub'}, b.note) : null,
      h('div', {'class': b.rows.length > 40 ? 'scroll many' : 'scroll'},
        h('table', {}, h('thead', {}, h('tr', {}, heads)), h('tbody', {}, b.rows.map(row)))));
  }

  function folded(title, className, children) { return h('details', className ? {'class': className} : {}, h('summary', {}, title), children); }

  /* Each option of a command on one line, where lines are long enough for it. */
  function command(b) {
    return h('pre', {}, h('code', {}, b.text.split(/ (?=--)/).map(function (part, i) { return [i ? ' ' : '', h('span', {}, part)]; })));
  }

  function evidence(e) {
    var show = {share: percent, bytes: f.bytes, 'bytes/s': f.rate, s: f.seconds}[e.unit];
    return show ? show(e.value) : f.plain(e.value) + (e.unit === 'ratio' ? ' times' : ' ' + e.unit);
  }

  /* A verdict in full (verdict.json of docs/RUNS.md); causes: [[name, title]] in the order of their colours. */
  function verdict(b) {
    var v = b.verdict, fine = v.bottleneck === 'none' || v.bottleneck === 'compute';
    var parts = b.causes.map(function (c, k) { return {title: c[1], share: (v.shares || {})[c[0]] || 0, colour: k}; })
      .filter(function (p) { return p.share >= 0.005; });
    return [
      h('p', {'class': fine ? 'verdict fine' : 'verdict'}, v.sentence),
      parts.length ? bar(parts) : null,
      parts.length ? h('div', {'class': 'keys'}, parts.map(function (p) {
        return h('span', {}, swatch('--p' + p.colour), p.title + ' ', h('b', {}, percent(p.share)));
      })) : null,
      (v.advice || []).length ? h('ul', {'class': 'advice'}, v.advice.map(function (a) {
        return h('li', {}, h('code', {}, a.change), ' ', h('span', {'class': 'gain'}, '×' + a.predicted_gain.toFixed(2)), ' ', a.text);
      })) : null,
      (v.evidence || []).length ? folded('Evidence', '', h('table', {}, h('tbody', {}, v.evidence.map(function (e) {
        return h('tr', {}, h('td', {'class': 'long'}, e.what), h('td', {'class': 'n'}, evidence(e)));
      })))) : null];
  }

  function button(name, value, text, on) {
    var attributes = {'aria-pressed': on ? 'true' : 'false'};
    attributes['data-' + name] = value;
    return h('button', attributes, text);
  }

  function tools(b) {
    return h('div', {'class': 'tools'},
      b.x ? h('span', {'class': 'set', role: 'group', 'aria-label': 'x axis'}, h('span', {}, 'x axis'),
        ['time', 'steps', 'rows'].map(function (x) { return button('x', x, x, view.x === x); })) : null,
      h('span', {'class': 'set', role: 'group', 'aria-label': 'y axis'}, h('span', {}, 'y axis'),
        button('log', '0', 'linear', !view.log), button('log', '1', 'log', view.log)));
  }

  function legend(b) {
    return h('div', {'class': 'runs'}, b.runs.map(function (r, i) {
      return h('label', {}, b.boxes ? h('input', {type: 'checkbox', 'data-run': i, checked: !view.hidden.has(i)}) : null, swatch('--c' + r.colour, r.dash), r.label);
    }));
  }

  function marks(b) {
    return h('div', {'class': 'keys'}, [['--eval', 'evaluation'], ['--save', 'checkpoint'], ['--join', 'join or resume'], ['--death', 'death or leave']]
      .map(function (m) { return h('span', {}, swatch(m[0]), m[1]); }), b.text ? h('span', {}, b.text) : null);
  }

  function plotsBlock(b) {
    var d = h('div', {'class': 'plots', 'data-plots': containers.length});
    d.keep = true;
    containers.push(b.plots.filter(function (p) { return p.axis === undefined || p.axis === view.x; }).map(function (p) {
      return Object.assign({}, p, {series: p.series.filter(function (s) { return !view.hidden.has(s.run); })});
    }));
    return [b.title ? h('h3', {}, b.title) : null, d];
  }

  /* ---- configurations of a sweep against an option ---- */

  /* "async, workers 2": the values on the other axes; words need no name. */
  function seriesLabel(row, axes) {
    return axes.filter(function (a) { return row.labels[a]; })
      .map(function (a) { return isNaN(parseFloat(row.labels[a])) ? row.labels[a] : a + ' ' + row.labels[a]; }).join(', ') || 'all';
  }

  function unique(list) { return list.filter(function (v, i) { return list.indexOf(v) === i; }); }

  function groupPlots(b, rows, axes) {
    var labels = unique(rows.map(function (r) { return seriesLabel(r, axes); }));
    var xs = rows.map(function (r) { return r.options[b.option]; }), low = Math.min.apply(null, xs), high = Math.max.apply(null, xs);
    return [
      labels.length > 1 ? legend({runs: labels.map(function (l, i) { return {label: l, colour: i % 8, dash: i >= 8}; })}) : null,
      plotsBlock({plots: b.figures.map(function (figure) {
        return {title: figure.title, unit: figure.unit, zero: figure.zero, linear: !figure.zero, x: xs.every(Number.isInteger) ? 'count' : 'plain', legend: labels.length > 1 ? false : undefined,
          logX: low > 0 && high >= 20 * low,
          series: labels.map(function (label, i) {
            var of = rows.filter(function (r) { return r.figures[figure.key] && seriesLabel(r, axes) === label; })
              .sort(function (p, q) { return p.options[b.option] - q.options[b.option]; });
            function column(k) { return of.map(function (r) { return r.figures[figure.key][k]; }); }
            return {label: label, colour: i % 8, dash: i >= 8, dots: true, x: of.map(function (r) { return r.options[b.option]; }), y: column(0), low: column(1), high: column(2)};
          })};
      })})];
  }

  /* A curve has the configurations that differ in the option only. More curves than colours: a set of plots for each value of the
   * first other axis. */
  function group(b) {
    var rows = current.configurations.filter(function (r) { return r.options[b.option] !== undefined; });
    if (unique(rows.map(function (r) { return seriesLabel(r, b.axes); })).length <= 8) return groupPlots(b, rows, b.axes);
    var facet = b.axes[0];
    return unique(rows.map(function (r) { return r.labels[facet]; })).map(function (value) {
      return [h('h3', {}, facet + ' ' + value), groupPlots(b, rows.filter(function (r) { return r.labels[facet] === value; }), b.axes.slice(1))];
    });
  }

  /* ---- the document ---- */

  var kinds = {
    text: textBlock, tiles: tiles, command: command, verdict: verdict, tools: tools, legend: legend, marks: marks, plots: plotsBlock, group: group,
    table: table,
    fold: function (b) { return folded(b.title, '', b.blocks.map(block)); },
    nav: function () {
      return h('nav', {}, current.sections.slice(1).map(function (s) { return h('a', {href: '#' + s.id}, s.title.split(',')[0]); }));
    },
    raw: function (b) { return folded(b.title, 'raw', h('pre', {}, h('code', {}, b.text))); },
    node: function (b) { return b.node; }
  };

  function block(b) { return kinds[b.kind](b); }

  function section(s) {
    return h('section', Object.assign({id: s.id}, s.blocks.length ? {} : {hidden: ''}),
      s.title && s.blocks.length ? h(s.id === 'head' ? 'h1' : 'h2', {}, s.title) : null,
      s.blocks.map(block));
  }

  /* The figures of a container, one for each plot; returns whether there is anything to see. */
  function fillPlots(e, plots) {
    var shown = false;
    var wanted = plots.map(function (p) { return p.key || p.title; });
    e.plots = e.plots.filter(function (have) {
      if (wanted.indexOf(have.key) >= 0) return true;
      have.figure.remove();
      return false;
    });
    plots.forEach(function (p, i) {
      var have = e.plots.find(function (x) { return x.key === wanted[i]; });
      if (!have) e.plots.push(have = Plot.make(e, wanted[i]));
      shown = have.set(p, {log: view.log && !p.linear}) || shown;
    });
    return shown;
  }

  function show(doc) {
    current = doc;
    containers = [];
    patchChildren($('page'), doc.sections.map(section));
    containers.forEach(function (plots, i) {
      var e = document.querySelector('[data-plots="' + i + '"]'), shown = fillPlots(e, plots), s = e.closest('section');
      if (s.id === 'curves' || s.id === 'use') s.hidden = !shown && !s.querySelector('p');
    });
    $('foot').textContent = doc.foot || '';
  }

  function everyPlot(fn) { document.querySelectorAll('[data-plots]').forEach(function (e) { e.plots.forEach(fn); }); }

  /* ---- events ---- */

  var redraw = function () { show(current); };

  document.addEventListener('click', function (e) {
    var b = e.target.closest('[data-x],[data-log],input[data-run]');
    if (!b) return;
    if (b.dataset.x) view.x = b.dataset.x;
    else if (b.dataset.log) view.log = b.dataset.log === '1';
    else if (b.checked) view.hidden.delete(Number(b.dataset.run));
    else view.hidden.add(Number(b.dataset.run));
    redraw();
  });

  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', function () { everyPlot(function (p) { p.restyle(); }); });

  var opened = [];
  addEventListener('beforeprint', function () {
    opened = [].filter.call(document.querySelectorAll('details:not(.raw)'), function (d) { return !d.open; });
    opened.forEach(function (d) { d.open = true; });
    everyPlot(function (p) { p.print(true); });
  });
  addEventListener('afterprint', function () {
    opened.forEach(function (d) { d.open = false; });
    everyPlot(function (p) { p.print(false); });
  });

  /* A report carries its document. */
  var data = $('data');
  if (data) {
    var doc = JSON.parse(data.textContent);
    show(doc);
    document.body.dataset.drawn = '1';
  }

  return {$: $, h: h, show: show, view: view, percent: percent, swatch: swatch, bar: bar, isReport: !!data,
    onChange: function (fn) { redraw = fn; }};
})();
