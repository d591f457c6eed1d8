/* Plots of the page: by uPlot where the binary has it, by plain SVG lines where it was built without.
 *
 * Plot.make(parent, {title, unit, x, zero}) gives {set(series, log, x), figure}; a series is {label, colour, dash, x, y}.
 * Nothing here writes markup: texts go in as text. */
'use strict';
var Plot = (function () {
  var HEIGHT = 200;

  function trim(value, digits) {
    return String(+value.toPrecision(digits));
  }

  function scaled(value, units, base) {
    var i = 0, v = Math.abs(value);
    while (v >= base * 0.9995 && i + 1 < units.length) { v /= base; i++; }
    return (value < 0 ? '-' : '') + trim(v, 3) + units[i];
  }

  /* Values as people read them, by unit. */
  var format = {
    plain: function (v) {
      if (v === 0) return '0';
      return Math.abs(v) >= 1e5 ? scaled(v, ['', 'k', 'M', 'G', 'T'], 1000) : Math.abs(v) < 1e-4 ? v.toExponential(1) : trim(v, 4);
    },
    count: function (v) { return scaled(v, ['', 'k', 'M', 'G', 'T'], 1000); },
    bytes: function (v) { return scaled(v, [' B', ' kB', ' MB', ' GB', ' TB'], 1000); },
    rate: function (v) { return scaled(v, [' B', ' kB', ' MB', ' GB', ' TB'], 1000) + '/s'; },
    cores: function (v) { return String(+v.toFixed(Math.abs(v) < 1 ? 3 : 2)); },
    share: function (v) { return trim(v * 100, 3) + '%'; },
    seconds: function (v) {
      if (v < 60) return v !== 0 && v < 0.9995 ? trim(v * 1000, 3) + ' ms' : trim(v, 3) + ' s';
      var s = Math.round(v), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
      return d > 0 ? d + ' d ' + h % 24 + ' h' : h > 0 ? h + ' h ' + m % 60 + ' min' : m + ' min ' + s % 60 + ' s';
    },
    axisSeconds: function (v, greatest) {
      if (greatest < 150) return trim(v, 3) + 's';
      var h = Math.floor(v / 3600), m = Math.floor(v % 3600 / 60), s = Math.round(v % 60);
      return h > 0 ? h + ':' + String(m).padStart(2, '0') + 'h' : m + ':' + String(s).padStart(2, '0');
    }
  };

  /* Texts of an axis's ticks: with as many decimals as tell them apart. */
  function tickTexts(ticks, show, unit, log) {
    var texts = ticks.map(function (v) { return v === null ? '' : show(v); });
    if (log || ticks.length < 2 || new Set(texts).size === texts.length || (unit !== 'plain' && unit !== 'share')) return texts;
    var scale = unit === 'share' ? 100 : 1, step = Math.abs(ticks[1] - ticks[0]) * scale, digits = 0;
    while (digits < 9 && Math.abs(step - Math.round(step)) > 1e-6 * step) { step *= 10; digits++; }
    return ticks.map(function (v) { return v === null ? '' : (v * scale).toFixed(digits) + (scale === 100 ? '%' : ''); });
  }

  function node(tag, className, parent) {
    var e = document.createElement(tag);
    if (className) e.className = className;
    if (parent) parent.appendChild(e);
    return e;
  }

  function svgNode(tag, attributes, parent) {
    var e = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (var key in attributes) e.setAttribute(key, attributes[key]);
    parent.appendChild(e);
    return e;
  }

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || '#888';
  }

  /* A curve whose x only grows: lines of a run may be a moment out of order. */
  function ascending(s) {
    var x = [], y = [];
    for (var i = 0; i < s.x.length; i++) {
      while (x.length && x[x.length - 1] >= s.x[i]) { x.pop(); y.pop(); }
      x.push(s.x[i]);
      y.push(s.y[i]);
    }
    return Object.assign({}, s, {x: x, y: y});
  }

  /* Columns by one x, as uPlot wants them. */
  function align(series) {
    if (series.length === 0) return [[]];
    return uPlot.join(series.map(function (s) { return [s.x, s.y]; }));
  }

  function last(series) {
    for (var i = series.y.length; i > 0; i--) if (series.y[i - 1] !== null) return series.y[i - 1];
    return null;
  }

  /* The newest value up to there. */
  function before(values, at) {
    while (at > 0 && (values[at] === null || values[at] === undefined)) at--;
    return values[at];
  }

  function make(parent, options) {
    var figure = node('figure', '', parent), caption = node('figcaption', '', figure);
    var canvas = node('div', 'canvas', figure), legend = node('div', 'legend', figure);
    var chart = null, shape = '', now = null, show = format[options.unit] || format.plain;
    caption.textContent = options.title;

    /* What stands below: names, with the value at the pointer or the newest one. */
    function fillLegend(at) {
      var series = now.series, wanted = Math.min(series.length, 12);
      while (legend.childElementCount > wanted) legend.removeChild(legend.lastChild);
      for (var i = 0; i < wanted; i++) {
        var item = legend.children[i];
        if (!item) {
          item = node('span', '', legend);
          node('i', 'swatch', item);
          node('span', '', item);
          node('b', '', item);
        }
        var value = at === null || !chart ? last(series[i]) : before(chart.data[i + 1], at);
        item.children[0].style.background = colour(series[i].colour);
        item.children[0].className = series[i].dash ? 'swatch dash' : 'swatch';
        item.children[1].textContent = series[i].label + ' ';
        item.children[2].textContent = value === null || value === undefined ? '' : show(value);
      }
    }

    function xText(v, greatest) { return now.x === 't' ? format.axisSeconds(v, greatest) : format.count(v); }

    function makeChart(data) {
      var dim = colour('--dim'), grid = colour('--grid'), font = '11px system-ui, sans-serif';
      var few = data[0].length < 80;
      return new uPlot({
        width: canvas.clientWidth, height: HEIGHT, legend: {show: false}, padding: [8, 10, 0, 0],
        cursor: {y: false, points: {size: 6}, drag: {x: true, y: false}},
        scales: {
          x: {time: false, range: function (u, low, high) { /* from 0, unless it is zoomed */
            return low === null ? [0, 1] : low === u.data[0][0] && low > 0 ? [0, high] : low === high ? [low, low + 1] : [low, high];
          }},
          y: {
            distr: now.log ? 3 : 1,
            range: now.log ? undefined : function (u, low, high) {
              if (low === null) return [0, 1];
              if (options.zero) return [0, high > 0 ? high * 1.08 : 1];
              var gap = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
              return [low - gap, high + gap];
            }
          }
        },
        axes: [
          {stroke: dim, font: font, size: 26, gap: 3, grid: {stroke: grid, width: 1}, ticks: {stroke: grid, size: 4},
            values: function (u, ticks) { return ticks.map(function (v) { return xText(v, u.scales.x.max); }); }},
          {stroke: dim, font: font, gap: 3, grid: {stroke: grid, width: 1}, ticks: {show: false},
            size: function (u, values) {
              var longest = 0;
              (values || []).forEach(function (v) { if (v) longest = Math.max(longest, v.length); });
              return 14 + longest * 6.4;
            },
            values: function (u, ticks) { return tickTexts(ticks, show, options.unit, now.log); }}
        ],
        series: [{}].concat(now.series.map(function (s) {
          return {stroke: colour(s.colour), width: 1.6, dash: s.dash ? [5, 4] : undefined, spanGaps: true,
            points: {show: few && s.y.length < 40, size: 4, fill: colour(s.colour)}};
        })),
        hooks: {setCursor: [function (u) {
          fillLegend(u.cursor.idx === undefined ? null : u.cursor.idx);
        }]}
      }, data, canvas);
    }

    function drawChart() {
      var data = align(now.series);
      var few = data[0].length < 80;
      var wanted = now.series.map(function (s) { return s.label + s.colour + (s.dash ? 1 : 0); }).join() + now.log + now.x + few;
      if (canvas.clientWidth === 0) return;
      if (chart && wanted === shape) {
        var zoomed = chart.scales.x.min > chart.data[0][0] || chart.scales.x.max < chart.data[0][chart.data[0].length - 1];
        chart.setData(data, !zoomed);
        if (zoomed) chart.redraw();
      } else {
        if (chart) chart.destroy();
        shape = wanted;
        chart = makeChart(data);
      }
    }

    function drawLines() {
      var w = canvas.clientWidth || 380, left = 52, bottom = 20, low = Infinity, high = -Infinity, from = Infinity, to = -Infinity;
      var y = function (v) { return now.log ? Math.log10(v) : v; };
      canvas.textContent = '';
      now.series.forEach(function (s) {
        s.y.forEach(function (v, i) {
          if (v === null || (now.log && v <= 0)) return;
          low = Math.min(low, y(v)); high = Math.max(high, y(v));
          from = Math.min(from, s.x[i]); to = Math.max(to, s.x[i]);
        });
      });
      if (low > high) return;
      if (options.zero && !now.log) low = Math.min(low, 0);
      var spanY = high - low || 1, spanX = to - from || 1;
      var px = function (v) { return left + (v - from) / spanX * (w - left - 4); };
      var py = function (v) { return 6 + (high - y(v)) / spanY * (HEIGHT - bottom - 6); };
      var svg = svgNode('svg', {viewBox: '0 0 ' + w + ' ' + HEIGHT, role: 'img', 'aria-label': options.title}, canvas);
      [0, 0.5, 1].forEach(function (k) {
        var v = low + k * spanY, at = 6 + (1 - k) * (HEIGHT - bottom - 6);
        svgNode('line', {x1: left, x2: w, y1: at, y2: at, 'class': 'frame'}, svg);
        svgNode('text', {x: left - 5, y: at + 4, 'text-anchor': 'end'}, svg).textContent = show(now.log ? Math.pow(10, v) : v);
        svgNode('text', {x: px(from + k * spanX), y: HEIGHT - 3, 'text-anchor': k === 0 ? 'start' : k === 1 ? 'end' : 'middle'}, svg)
          .textContent = xText(from + k * spanX, to);
      });
      now.series.forEach(function (s) {
        var points = [];
        s.y.forEach(function (v, i) {
          if (v !== null && !(now.log && v <= 0)) points.push(px(s.x[i]).toFixed(1) + ',' + py(v).toFixed(1));
        });
        var line = svgNode('polyline', {points: points.join(' '), stroke: colour(s.colour)}, svg);
        if (s.dash) line.setAttribute('stroke-dasharray', '5 4');
      });
    }

    function draw() {
      if (!now) return;
      if (typeof uPlot === 'function') drawChart(); else drawLines();
      fillLegend(null);
    }

    if (typeof ResizeObserver === 'function')
      new ResizeObserver(function () {
        if (chart && canvas.clientWidth > 0) chart.setSize({width: canvas.clientWidth, height: HEIGHT});
        else draw();
      }).observe(canvas);

    return {
      figure: figure,
      /* Without a point the figure is hidden. */
      set: function (series, log, x) {
        series = series.map(ascending).filter(function (s) { return s.y.some(function (v) { return v !== null && (!log || v > 0); }); });
        if (log) series = series.map(function (s) {
          return Object.assign({}, s, {y: s.y.map(function (v) { return v > 0 ? v : null; })});
        });
        figure.hidden = series.length === 0;
        now = {series: series, log: !!log, x: x || 't'};
        if (!figure.hidden) draw();
        return !figure.hidden;
      },
      restyle: function () { shape = ''; draw(); }
    };
  }

  return {make: make, format: format};
})();
