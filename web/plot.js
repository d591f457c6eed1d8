/* Plots of the page: uPlot draws them on a screen if the page has it; plain SVG otherwise, and in print.
 *
 * Plot.make(parent, key) returns {key, figure, set(plot, view), restyle(), print(on)}. A plot is
 *   {title, unit, x: unit of x, zero, zeroX, logX, series, marks, lanes}
 * and a series {label, colour: 0 to 7, dash, dots, x, y, low, high, band}: a null in y is a gap; low and high are the bounds of a
 * band, or of bars at the points. A mark is {kind, from, to, text, lane, colour}. view is {log}. Nothing here writes markup: texts
 * are set as text. */
'use strict';
var Plot = (function () {
  var HEIGHT = 210, MARKS = 400, LANE = 6;
  var MARK_COLOURS = {evaluation: '--eval', checkpoint: '--save', join: '--join', death: '--death'};

  /* ---- numbers ---- */

  function trim(value, digits) { return String(+value.toPrecision(digits)); }

  function scaled(value, units) {
    var i = 0, v = Math.abs(value);
    while (v >= 999.5 && i + 1 < units.length) { v /= 1000; i++; }
    return (value < 0 ? '-' : '') + trim(v, 3) + units[i];
  }

  var COUNTS = ['', 'k', 'M', 'G', 'T'], BYTES = [' B', ' kB', ' MB', ' GB', ' TB'];

  /* Values as people read them, by unit (src/base/figure.h). */
  var format = {
    plain: function (v) {
      if (v === 0) return '0';
      return Math.abs(v) >= 1e5 ? scaled(v, COUNTS) : Math.abs(v) < 1e-4 ? v.toExponential(1) : trim(v, 4);
    },
    count: function (v) { return scaled(v, COUNTS); },
    bytes: function (v) { return scaled(v, BYTES); },
    rate: function (v) { return scaled(v, BYTES) + '/s'; },
    cores: function (v) { return String(+v.toFixed(Math.abs(v) < 1 ? 3 : 2)); },
    share: function (v) { return trim(v * 100, 3) + '%'; },
    seconds: function (v) {
      if (v < 60) return v !== 0 && v < 0.9995 ? trim(v * 1000, 3) + ' ms' : trim(v, 3) + ' s';
      var s = Math.round(v), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
      return d > 0 ? d + ' d ' + h % 24 + ' h' : h > 0 ? h + ' h ' + m % 60 + ' min' : m + ' min ' + s % 60 + ' s';
    },
    clock: function (v, greatest) { /* on an axis of seconds up to greatest */
      if (greatest < 150) return trim(v, 3) + 's';
      var h = Math.floor(v / 3600), m = Math.floor(v % 3600 / 60), s = Math.round(v % 60);
      return h > 0 ? h + ':' + String(m).padStart(2, '0') + 'h' : m + ':' + String(s).padStart(2, '0');
    }
  };

  function xText(plot, v, greatest) {
    return plot.x === 'seconds' ? format.clock(v, greatest) : plot.x === 'count' ? format.count(v) : format.plain(v);
  }

  /* Texts of an axis's ticks, with enough decimals to tell them apart. */
  function tickTexts(ticks, show, unit, log) {
    var texts = ticks.map(function (v) { return v === null ? '' : show(v); });
    if (log || ticks.length < 2 || new Set(texts).size === texts.length || (unit !== 'plain' && unit !== 'share')) return texts;
    var scale = unit === 'share' ? 100 : 1, step = Math.abs(ticks[1] - ticks[0]) * scale, digits = 0;
    while (digits < 9 && Math.abs(step - Math.round(step)) > 1e-6 * step) { step *= 10; digits++; }
    return ticks.map(function (v) { return v === null ? '' : (v * scale).toFixed(digits) + (scale === 100 ? '%' : ''); });
  }

  /* Distances between ticks of counts, and of seconds beyond a minute. */
  var WHOLE = [], CLOCK = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  for (var power = 1; power <= 1e12; power *= 10) WHOLE.push(power, 2 * power, 5 * power);
  for (var days = 2; days < 1e5; days *= 2) CLOCK.push(days * 86400);
  var SECONDS = [1e-4, 1e-3, 1e-2, 0.1, 1, 10].flatMap(function (s) { return s < 10 ? [s, 2 * s, 5 * s] : [10, 20, 30]; }).concat(CLOCK);

  /* ---- data ---- */

  function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || '#888'; }

  /* The curve with x ascending, since lines of a run may be slightly out of order, and without values that a log axis cannot hold. */
  function prepare(s, log) {
    var out = Object.assign({}, s, {x: [], y: []}), kept = [];
    for (var i = 0; i < s.x.length; i++) {
      if (s.x[i] === null || s.x[i] === undefined) continue;
      while (out.x.length && out.x[out.x.length - 1] >= s.x[i]) { out.x.pop(); kept.pop(); }
      out.x.push(s.x[i]);
      kept.push(i);
    }
    function pick(values) {
      return values && kept.map(function (k) { return values[k] === undefined || (log && !(values[k] > 0)) ? null : values[k]; });
    }
    out.y = pick(s.y);
    out.low = pick(s.low);
    out.high = pick(s.high);
    return out;
  }

  function last(values) {
    for (var i = values.length; i > 0; i--) if (values[i - 1] !== null) return values[i - 1];
    return null;
  }

  /* The newest value up to that index. */
  function before(values, at) {
    while (at > 0 && (values[at] === null || values[at] === undefined)) at--;
    return values[at];
  }

  /* {x: [low, high], y: [low, high]} of everything that is drawn. */
  function bounds(series) {
    var b = {x: [Infinity, -Infinity], y: [Infinity, -Infinity]};
    function take(range, v) { if (v !== null) { range[0] = Math.min(range[0], v); range[1] = Math.max(range[1], v); } }
    series.forEach(function (s) {
      s.y.forEach(function (v, i) {
        if (v === null) return;
        take(b.x, s.x[i]);
        take(b.y, v);
        if (s.low) { take(b.y, s.low[i]); take(b.y, s.high[i]); }
      });
    });
    return b;
  }

  function rangeX(plot, low, high) {
    if (plot.logX) return [low / 1.15, high * 1.15];
    if (plot.zeroX && low > 0) return [0, high];
    if (low === high) return [low - 0.5, high + 0.5];
    return plot.zeroX ? [low, high] : [low - (high - low) * 0.04, high + (high - low) * 0.04];
  }

  function rangeY(plot, low, high) {
    if (plot.zero) return [Math.min(0, low), high > 0 ? high * 1.08 : 1];
    var gap = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
    return [low - gap < 0 && low >= 0 ? 0 : low - gap, high + gap];
  }

  /* Marks as boxes between x pixels; across the plot, or in lanes above it. */
  function markBoxes(plot, toX, left, right, top, bottom) {
    var lanes = plot.lanes || 0, boxes = [], begun = {};
    (plot.marks || []).slice(0, MARKS).forEach(function (m) {
      var from = toX(m.from), to = m.to === undefined || m.to === null ? right : toX(m.to), band = m.kind === 'evaluation' || m.kind === 'checkpoint';
      if (!(to >= left && from <= right) || (lanes && m.lane >= lanes)) return;
      from = Math.max(from, left);
      var box = {x: from, w: Math.max(1.5, Math.min(to, right) - from), y: top, h: bottom - top, colour: MARK_COLOURS[m.kind], alpha: band ? 0.25 : 0.9, text: m.text};
      if (lanes) {
        box.y = top - LANE * (lanes - m.lane) - 2;
        box.h = LANE - 1;
        box.alpha = 1;
        if (!begun[m.lane]) boxes.push({x: left - 10, w: 7, y: box.y, h: box.h, colour: '--c' + m.colour, alpha: 1, text: ''});
        begun[m.lane] = true;
      }
      boxes.push(box);
    });
    return boxes;
  }

  /* ---- SVG ---- */

  function svgNode(tag, attributes, parent, text) {
    var e = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (var key in attributes) {
      if (key === 'stroke' || key === 'fill') e.style.setProperty(key, attributes[key]);
      else e.setAttribute(key, attributes[key]);
    }
    if (text !== undefined) e.textContent = text;
    parent.appendChild(e);
    return e;
  }

  function paint(number) { return 'var(--c' + number + ')'; }

  /* Round values from low to high, about n of them. */
  function linearTicks(low, high, n, steps) {
    var rough = (high - low) / n, power = Math.pow(10, Math.floor(Math.log10(rough))), f = rough / power, ticks = [];
    var step = (steps || []).find(function (s) { return s >= rough; }) || power * (f <= 1 ? 1 : f <= 2 ? 2 : f <= 2.5 ? 2.5 : f <= 5 ? 5 : 10);
    for (var i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && ticks.length < 20; i++) ticks.push(+(i * step).toPrecision(12));
    return ticks;
  }

  function logTicks(low, high) {
    var ticks = [], decades = Math.log10(high / low);
    if (decades < 0.7) return linearTicks(low, high, 4).filter(function (v) { return v > 0; });
    for (var e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e += Math.max(1, Math.round(decades / 5)))
      (decades < 3 ? [1, 2, 5] : [1]).forEach(function (k) {
        var v = k * Math.pow(10, e);
        if (v >= low && v <= high) ticks.push(v);
      });
    return ticks;
  }

  function drawSvg(plot, series, log, parent, width) {
    var b = bounds(series), show = format[plot.unit] || format.plain, lanes = (plot.lanes || 0) * LANE + (plot.lanes ? 4 : 0);
    var x = rangeX(plot, b.x[0], b.x[1]), y = log ? [b.y[0] / 1.1, b.y[1] * 1.1] : rangeY(plot, b.y[0], b.y[1]);
    var ticks = log ? logTicks(y[0], y[1]) : linearTicks(y[0], y[1], 5), texts = tickTexts(ticks, show, plot.unit, log);
    var left = 12 + 6.6 * Math.max.apply(null, texts.map(function (t) { return t.length; }).concat(3)), right = width - 6, top = 6 + lanes, bottom = HEIGHT - 20;
    function scale(range, isLog, from, to) {
      var l = isLog ? Math.log10 : function (v) { return v; }, a = l(range[0]), c = l(range[1]);
      return function (v) { return from + (l(v) - a) / (c - a) * (to - from); };
    }
    var px = scale(x, plot.logX, left, right), py = scale(y, log, bottom, top);
    var svg = svgNode('svg', {viewBox: '0 0 ' + width + ' ' + HEIGHT, role: 'img', 'aria-label': plot.title}, parent);
    ticks.forEach(function (v, i) {
      svgNode('line', {x1: left, x2: right, y1: py(v).toFixed(1), y2: py(v).toFixed(1), 'class': 'frame'}, svg);
      svgNode('text', {x: left - 5, y: (py(v) + 4).toFixed(1), 'text-anchor': 'end'}, svg, texts[i]);
    });
    var xTicks = plot.logX ? logTicks(x[0], x[1]) : linearTicks(x[0], x[1], Math.max(2, Math.round(width / 90)),
      plot.x === 'count' ? WHOLE : plot.x === 'seconds' ? SECONDS : null);
    xTicks.forEach(function (v) {
      svgNode('line', {x1: px(v).toFixed(1), x2: px(v).toFixed(1), y1: top, y2: bottom, 'class': 'frame'}, svg);
      svgNode('text', {x: px(v).toFixed(1), y: HEIGHT - 4, 'text-anchor': px(v) > right - 14 ? 'end' : 'middle'}, svg, xText(plot, v, x[1]));
    });
    markBoxes(plot, px, left, right, top, bottom).forEach(function (m) {
      var box = svgNode('rect', {x: m.x.toFixed(1), y: m.y.toFixed(1), width: m.w.toFixed(1), height: m.h.toFixed(1), fill: 'var(' + m.colour + ')', opacity: m.alpha, 'class': 'mark'}, svg);
      svgNode('title', {}, box, m.text);
    });
    series.forEach(function (s) {
      var pieces = [[]], lower = [];
      s.y.forEach(function (v, i) {
        if (v === null) { pieces.push([]); return; }
        var at = px(s.x[i]).toFixed(1);
        pieces[pieces.length - 1].push(at + ',' + py(v).toFixed(1));
        if (s.dots && s.y.length < 80) svgNode('circle', {cx: at, cy: py(v).toFixed(1), r: 2.6, fill: paint(s.colour)}, svg);
        if (!s.low || s.low[i] === null) return;
        if (s.band) lower.push([at + ',' + py(s.high[i]).toFixed(1), at + ',' + py(s.low[i]).toFixed(1)]);
        else svgNode('line', {x1: at, x2: at, y1: py(s.low[i]).toFixed(1), y2: py(s.high[i]).toFixed(1), stroke: paint(s.colour)}, svg);
      });
      if (lower.length)
        svgNode('polygon', {points: lower.map(function (p) { return p[0]; }).concat(lower.reverse().map(function (p) { return p[1]; })).join(' '),
          fill: paint(s.colour), opacity: 0.2}, svg);
      pieces.forEach(function (points) {
        var line = svgNode('polyline', {points: points.join(' '), stroke: paint(s.colour)}, svg);
        if (s.dash) line.setAttribute('stroke-dasharray', '5 4');
        if (points.length === 1) svgNode('circle', {cx: points[0].split(',')[0], cy: points[0].split(',')[1], r: 3.2, fill: paint(s.colour)}, svg);
      });
    });
  }

  /* ---- uPlot ---- */

  function drawUnder(plot, series) {
    return function (u) {
      var c = u.ctx, r = window.devicePixelRatio || 1, box = u.bbox;
      c.save();
      markBoxes(plot, function (v) { return u.valToPos(v, 'x', true) / r; }, box.left / r, (box.left + box.width) / r, box.top / r, (box.top + box.height) / r)
        .forEach(function (m) {
          c.globalAlpha = m.alpha;
          c.fillStyle = colour(m.colour);
          c.fillRect(m.x * r, m.y * r, m.w * r, m.h * r);
        });
      c.beginPath();
      c.rect(box.left, box.top, box.width, box.height);
      c.clip();
      series.forEach(function (s) {
        if (!s.low) return;
        c.fillStyle = c.strokeStyle = colour('--c' + s.colour);
        c.globalAlpha = s.band ? 0.2 : 1;
        c.lineWidth = 1.6 * r;
        c.beginPath();
        var at = function (i, v) { return [u.valToPos(s.x[i], 'x', true), u.valToPos(v, 'y', true)]; }, i;
        if (s.band) {
          for (i = 0; i < s.x.length; i++) if (s.high[i] !== null) c.lineTo.apply(c, at(i, s.high[i]));
          for (i = s.x.length; i > 0; i--) if (s.low[i - 1] !== null) c.lineTo.apply(c, at(i - 1, s.low[i - 1]));
          c.fill();
        } else {
          for (i = 0; i < s.x.length; i++) if (s.low[i] !== null) { c.moveTo.apply(c, at(i, s.low[i])); c.lineTo.apply(c, at(i, s.high[i])); }
          c.stroke();
        }
      });
      c.restore();
    };
  }

  function makeChart(canvas, plot, series, log, data, onCursor) {
    var dim = colour('--dim'), grid = colour('--grid'), font = '11px system-ui, sans-serif', show = format[plot.unit] || format.plain;
    var few = data[0].length < 80, b = bounds(series), whole = series.some(function (s) { return s.low; });
    return new uPlot({
      width: canvas.clientWidth, height: HEIGHT, legend: {show: false}, padding: [8 + (plot.lanes ? plot.lanes * LANE + 2 : 0), 10, 0, 0],
      cursor: {y: false, points: {size: 6}, drag: {x: true, y: false}},
      scales: {
        x: {time: false, distr: plot.logX ? 3 : 1, range: function (u, low, high) { /* wider than the data, unless it is zoomed */
          return low === null ? [0, 1] : low === u.data[0][0] && high === u.data[0][u.data[0].length - 1] ? rangeX(plot, low, high) : [low, high];
        }},
        y: {
          distr: log ? 3 : 1,
          range: log ? undefined : function (u, low, high) {
            return low === null ? [0, 1] : whole ? rangeY(plot, b.y[0], b.y[1]) : rangeY(plot, low, high);
          }
        }
      },
      axes: [
        {stroke: dim, font: font, size: 26, gap: 3, grid: {stroke: grid, width: 1}, ticks: {stroke: grid, size: 4}, incrs: plot.x === 'count' ? WHOLE : plot.x === 'seconds' ? SECONDS : undefined,
          splits: plot.logX ? function (u, axis, low, high) { return logTicks(low, high); } : undefined, filter: plot.logX ? function (u, ticks) { return ticks; } : undefined,
          values: function (u, ticks) { return ticks.map(function (v) { return v === null ? '' : xText(plot, v, u.scales.x.max); }); }},
        {stroke: dim, font: font, gap: 3, grid: {stroke: grid, width: 1}, ticks: {show: false},
          size: function (u, values) {
            var longest = 0;
            (values || []).forEach(function (v) { if (v) longest = Math.max(longest, v.length); });
            return 14 + longest * 6.4;
          },
          values: function (u, ticks) { return tickTexts(ticks, show, plot.unit, log); }}
      ],
      series: [{}].concat(series.map(function (s) {
        return {stroke: colour('--c' + s.colour), width: 1.6, dash: s.dash ? [5, 4] : undefined, spanGaps: false,
          points: {show: s.y.length === 1 || (few && s.y.length < 40), size: s.y.length === 1 ? 7 : 4, fill: colour('--c' + s.colour)}};
      })),
      hooks: {drawAxes: [drawUnder(plot, series)], setCursor: [function (u) { onCursor(u.cursor.idx === undefined ? null : u.cursor.idx); }]}
    }, data, canvas);
  }

  /* ---- a figure ---- */

  function node(tag, className, parent) {
    var e = document.createElement(tag);
    if (className) e.className = className;
    if (parent) parent.appendChild(e);
    return e;
  }

  function make(parent, key) {
    var figure = node('figure', '', parent), caption = node('figcaption', '', figure);
    var canvas = node('div', 'canvas', figure), legend = node('div', 'legend', figure);
    var chart = null, shape = '', plot = null, series = [], log = false, printing = false;

    /* The names of the curves, with the value at the pointer or the newest one. */
    function fillLegend(at) {
      var wanted = plot.legend === false ? 0 : Math.min(series.length, 12), show = format[plot.unit] || format.plain;
      while (legend.childElementCount > wanted) legend.removeChild(legend.lastChild);
      for (var i = 0; i < wanted; i++) {
        var item = legend.children[i];
        if (!item) {
          item = node('span', '', legend);
          node('i', 'swatch', item);
          node('span', '', item);
          node('b', '', item);
        }
        var value = at === null || !chart ? last(series[i].y) : before(chart.data[i + 1], at);
        item.children[0].style.background = paint(series[i].colour);
        item.children[0].className = series[i].dash ? 'swatch dash' : 'swatch';
        item.children[1].textContent = series[i].label + ' ';
        item.children[2].textContent = value === null || value === undefined ? '' : show(value);
      }
    }

    function drop() {
      if (chart) chart.destroy();
      chart = null;
      shape = '';
      canvas.textContent = '';
    }

    function drawChart() {
      /* 2: a gap extends over the points of other curves */
      var data = series.length ? uPlot.join(series.map(function (s) { return [s.x, s.y]; }), series.map(function () { return [0, 2]; })) : [[]];
      var wanted = JSON.stringify([series.map(function (s) { return [s.label, s.colour, !!s.dash, !!s.low, s.y.length === 1]; }), log, plot.x, data[0].length < 80]);
      if (canvas.clientWidth === 0) return;
      if (chart && wanted === shape && !series.some(function (s) { return s.low; }) && !plot.marks) {
        var zoomed = chart.scales.x.min > chart.data[0][0] || chart.scales.x.max < chart.data[0][chart.data[0].length - 1];
        chart.setData(data, !zoomed);
        if (zoomed) chart.redraw();
      } else {
        drop();
        shape = wanted;
        chart = makeChart(canvas, plot, series, log, data, fillLegend);
      }
    }

    function draw() {
      if (!plot || figure.hidden) return;
      if (printing || typeof uPlot !== 'function') {
        drop();
        drawSvg(plot, series, log, canvas, printing ? 380 : canvas.clientWidth || 380);
      } else drawChart();
      fillLegend(null);
    }

    if (typeof ResizeObserver === 'function')
      new ResizeObserver(function () {
        if (printing) return;
        if (chart && canvas.clientWidth > 0) chart.setSize({width: canvas.clientWidth, height: HEIGHT});
        else draw();
      }).observe(canvas);

    return {
      key: key,
      figure: figure,
      /* Hides the figure if there is no point to draw; returns whether it is shown. */
      set: function (wanted, view) {
        plot = wanted;
        log = !!view.log;
        series = plot.series.map(function (s) { return prepare(s, log); })
          .filter(function (s) { return s.y.some(function (v) { return v !== null; }); });
        figure.hidden = series.length === 0;
        caption.textContent = plot.title;
        draw();
        return !figure.hidden;
      },
      restyle: function () { shape = ''; draw(); },
      /* Draws as SVG for paper, whatever the screen has. */
      print: function (on) { printing = on; draw(); }
    };
  }

  return {make: make, format: format};
})();
