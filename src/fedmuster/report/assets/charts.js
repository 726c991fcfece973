// Curves with bands: hover for values, drag to zoom; charts with the same x axis go together.
const ZOOM = 1.6;
const together = { seconds: [], round: [], spent_max: [], updates: [] };

function makeCharts() {
  const section = document.getElementById("charts");
  const grid = element("div", { class: "charts" });
  section.append(grid);
  section.hidden = !data.charts.length;
  if (data.charts.length) {
    grid.after(element("p", { class: "hint" },
      "Drag across a chart to zoom, double-click to see all again; with the keyboard: ← → for values, + − to zoom, 0 for all."
      + (data.seeds > 1 ? ` Bands: ${data.level} % Student-t intervals over ${data.seeds} seeds. A band ends with the first of its seeds, the line goes on with what those that ended have.` : "")));
  }
  for (const chart of data.charts) makeChart(grid, chart);
}

function makeChart(grid, chart) {
  const host = element("figure", { class: "chart", "data-chart": chart.name });
  host.style.margin = 0;
  const plot = element("div", { class: "plot", tabindex: 0, role: "img", "aria-label": inWords(chart) });
  const all = element("button", { type: "button", disabled: true, title: "Show the whole axis" }, "Reset zoom");
  host.append(element("div", { class: "chart-head" }, element("h3", {}, chart.title), all), plot);
  grid.append(host);
  const box = tip(host);
  const whole = { min: chart.axis === "round" ? Math.min(chart.x[0], 1) : 0, max: chart.x[chart.x.length - 1] };
  if (whole.min === whole.max) whole.max += 1;

  const columns = [chart.x];
  for (const curve of chart.curves) {
    columns.push(curve.mean, ...bounds(chart, curve));
  }
  const show = chart.percent ? percent : number;
  const own = chart.curves.some((curve) => curve.name);  // one policy's, and gone with it
  if (own) host.append(element("div", { class: "keys" }, ...chart.curves.map((curve) => element("span", {}, swatch(look(curve)), nameOf(curve)))));
  const tick = chart.percent ? (v) => number(100 * v, 4) + " %" : (v) => number(v, 6);
  const path = chart.steps ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
  const series = [{}];
  const bands = [];
  chart.curves.forEach((curve) => {
    const line = () => colour(look(curve));
    const place = series.length;
    series.push(
      { label: nameOf(curve), stroke: line, width: own ? 1.5 : 2, dash: dash(look(curve)), paths: path, spanGaps: own, points: { show: alone(curve) } },
      { stroke: "transparent", width: 0, auto: false, paths: path, points: { show: false } },
      { stroke: "transparent", width: 0, auto: false, paths: path, points: { show: false } },
    );
    bands.push({ series: [place + 2, place + 1], fill: () => line() + "24" });
  });
  const axis = (title, more) => ({
    label: title, labelSize: 22, labelGap: 0, labelFont: "13px system-ui, sans-serif", font: "12px system-ui, sans-serif",
    stroke: () => themed("--muted"), grid: { stroke: () => themed("--grid"), width: 1 },
    ticks: { stroke: () => themed("--grid"), width: 1, size: 5 }, ...more,
  });
  const size = () => ({ width: Math.max(plot.clientWidth, 100), height: Math.max(plot.clientHeight, 60) });
  const u = new uPlot({
    ...size(),
    legend: { show: false },
    padding: [8, 14, 0, 0],
    series,
    bands,
    scales: {
      x: { time: false, ...whole, range: (_, low, high) => [low, high] },
      y: { range: (self, low, high) => heights(chart, low, high), ...(chart.logarithmic ? { distr: 3, log: 10 } : {}) },
    },
    axes: [
      axis(chart.xTitle, { size: 30, values: (_, marks) => marks.map((v) => number(v, 6)), incrs: chart.axis === "round" ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7, 1e8] : undefined }),
      axis(chart.yTitle, { size: 58, values: (_, marks) => marks.map((v) => (v == null ? "" : tick(v))) }),
    ],
    cursor: { y: false, drag: { x: true, y: false, dist: 5 }, focus: { prox: -1 },
      points: { show: false }, sync: { key: chart.axis } },
    hooks: {
      setCursor: [(self) => describe(self)],
      setScale: [(self, key) => { if (key === "x") zoomed(self); }],
      draw: [(self) => drawMark(self, chart)],
    },
  }, columns, plot);
  together[chart.axis].push(u);
  u.whole = whole;

  function describe(self) {
    const at = self.cursor.idx;
    const active = host.matches(":hover") || plot.matches(":focus-visible") || self.touched;
    if (at == null || self.cursor.left < 0 || !active) return box.hide();
    const rows = chart.curves
      .filter((curve) => shown[curve.policy] && curve.mean[at] != null)
      .sort((one, two) => two.mean[at] - one.mean[at])
      .map((curve) => [swatch(look(curve)), nameOf(curve),
        show(curve.mean[at]) + (curve.half?.[at] == null ? "" : " ± " + show(curve.half[at], 2))]);
    if (!rows.length) return box.hide();
    const where = { round: () => `${chart.xTitle} ${number(chart.x[at], 9)}`, seconds: () => `${number(chart.x[at], 5)} s` }[chart.axis]?.()
      ?? `${chart.xTitle}: ${number(chart.x[at])}`;
    box.show(self.cursor.left + self.over.offsetLeft, 44, where, rows);
  }

  function zoomed(self) {
    const { min, max } = self.scales.x;
    const near = (a, b) => Math.abs(a - b) <= 1e-9 * (whole.max - whole.min);
    all.disabled = near(min, whole.min) && near(max, whole.max);
    host.dataset.min = min;
    host.dataset.max = max;
  }

  const reset = () => zoomTogether(chart.axis, null);
  all.addEventListener("click", reset);
  u.over.addEventListener("dblclick", reset);
  u.over.addEventListener("mouseup", () => setTimeout(() => zoomTogether(chart.axis, u.scales.x), 0));
  plot.addEventListener("keydown", (event) => { if (byKeyboard(u, event)) event.preventDefault(); });
  plot.addEventListener("blur", () => box.hide());
  host.addEventListener("mouseleave", () => box.hide());
  byTouch(u, (range) => zoomTogether(chart.axis, range), () => describe(u));
  new ResizeObserver(() => u.setSize(size())).observe(plot);
  follow(() => u.batch(() => {  // which draws in the end, with the colours of now
    chart.curves.forEach((curve, place) => {
      for (let part = 1; part <= 3; part++) {
        const show = shown[curve.policy] && (part === 1 || bandsShown);
        if (u.series[3 * place + part].show !== show) u.setSeries(3 * place + part, { show });
      }
    });
    host.hidden = own && !chart.curves.some((curve) => shown[curve.policy]);
    host.dataset.shown = chart.curves.filter((curve) => shown[curve.policy]).map(nameOf).join("\n");
  }));
}

/** A curve is a policy's, unless it has a name and a look of its own. */
function nameOf(curve) { return curve.name ?? data.policies[curve.policy]; }

function look(curve) { return curve.look ?? curve.policy; }

/** A curve with a single value is drawn as a point. */
function alone(curve) { return curve.mean.filter((value) => value != null).length === 1; }

/** The lower and upper edge of the band. */
function bounds(chart, curve) {
  const lowest = chart.logarithmic ? Math.min(...curve.mean.filter((v) => v != null)) / 100 : -Infinity;
  return [-1, 1].map((sign) => curve.mean.map((mean, at) => (
    mean == null || curve.half?.[at] == null ? null : Math.max(mean + sign * curve.half[at], lowest))));
}

/** The y axis fits the means: the band of two seeds can be wider than all else. */
function heights(chart, low, high) {
  if (chart.mark?.within) return [0, 1.1 * Math.max(high ?? 0, chart.mark.value)];
  if (low == null) return chart.logarithmic ? [0.1, 1] : [0, 1];
  if (chart.logarithmic) return [low / 1.4, high * 1.4];
  if (chart.floor != null) low = Math.min(low, chart.floor);
  const margin = 0.08 * Math.max(high - low, 1e-3 * Math.abs(high), 1e-12);
  if (chart.name.endsWith("-total")) return [Math.min(0, low - margin), high + margin];
  const top = chart.percent ? Math.min(high + margin, Math.max(1, high)) : high + margin;
  return [low >= 0 ? Math.max(0, low - margin) : low - margin, top];
}

/** The target or the cap: a line across, or a word at the top if it is higher than the axis. */
function drawMark(u, chart) {
  if (chart.mark == null) return;
  const { left, top, width, height } = u.bbox;
  const place = Math.round(u.valToPos(chart.mark.value, "y", true));
  const above = place < top;
  const y = above ? top : place;
  if (y > top + height) return;
  const ctx = u.ctx;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = themed("--muted");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  const middle = y + devicePixelRatio / 2;  // of a row of pixels, else the line is two pale rows
  ctx.moveTo(left, middle);
  ctx.lineTo(left + width, middle);
  if (!above) ctx.stroke();
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = y - top > 18 * devicePixelRatio ? "bottom" : "top";
  ctx.fillText(chart.mark.text + (above ? " ↑" : ""), left + 4 * devicePixelRatio, y);
  ctx.restore();
}

/** Give all charts of an axis this range, or each its whole. */
function zoomTogether(axis, range) {
  for (const u of together[axis]) {
    const { min, max } = range ?? u.whole;
    if (u.scales.x.min !== min || u.scales.x.max !== max) u.setScale("x", { min, max });
  }
}

function byKeyboard(u, event) {
  const { min, max } = u.scales.x;
  const axis = Object.keys(together).find((name) => together[name].includes(u));
  const at = u.cursor.idx ?? 0;
  const centre = u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : (min + max) / 2;
  const zoom = (factor) => {
    zoomTogether(axis, {
      min: Math.max(u.whole.min, centre - (centre - min) * factor),
      max: Math.min(u.whole.max, centre + (max - centre) * factor),
    });
  };
  const step = (by) => {
    const x = u.data[0];
    const next = u.cursor.left < 0 ? (by > 0 ? 0 : x.length - 1) : Math.min(Math.max(at + by, 0), x.length - 1);
    u.setCursor({ left: u.valToPos(x[next], "x"), top: 10 });
  };
  const keys = {
    "+": () => zoom(1 / ZOOM), "=": () => zoom(1 / ZOOM), "-": () => zoom(ZOOM), "0": () => zoomTogether(axis, null),
    ArrowLeft: () => step(-1), ArrowRight: () => step(1),
  };
  if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return false;
  keys[event.key]();
  return true;
}

/** One finger sideways: values while it moves, a zoom if it went far; up and down still scrolls. */
function byTouch(u, zoom, describe) {
  let start = null;
  const place = (event) => event.clientX - u.over.getBoundingClientRect().left;
  const touch = (event) => event.pointerType === "touch";
  u.over.addEventListener("pointerdown", (event) => {
    if (!touch(event)) return;
    start = place(event);
    u.touched = true;
    u.setCursor({ left: start, top: 10 });
    describe();
  });
  u.over.addEventListener("pointermove", (event) => {
    if (!touch(event) || start == null) return;
    const now = place(event);
    u.setCursor({ left: now, top: 10 });
    u.setSelect({ left: Math.min(start, now), width: Math.abs(now - start), top: 0, height: u.over.clientHeight }, false);
    describe();
  });
  const end = (event) => {
    if (!touch(event) || start == null) return;
    const now = place(event);
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    if (event.type === "pointerup" && Math.abs(now - start) > 30) {
      const ends = [start, now].map((at) => u.posToVal(at, "x")).sort((a, b) => a - b);
      zoom({ min: Math.max(ends[0], u.whole.min), max: Math.min(ends[1], u.whole.max) });
    }
    start = null;
    u.touched = false;
  };
  u.over.addEventListener("pointerup", end);
  u.over.addEventListener("pointercancel", end);
}

function inWords(chart) {
  const show = chart.percent ? percent : number;
  const ends = chart.curves.map((curve) => {
    const last = curve.mean.reduce((found, value, at) => (value == null ? found : at), 0);
    return `${nameOf(curve)} ${show(curve.mean[last])}`;
  });
  return `${chart.title}. At the end: ${ends.join(", ")}.`;
}
