// What policies think of clients: their scores over rounds, and which clients remain candidates.
function makeScores() {
  const { seed, lines, timelines, planes } = data.scores;
  const run = data.seeds > 1 ? ` Shown is seed ${seed}.` : "";
  if (lines.length) {
    fill("scores", lines, "The score with which each policy chooses, of at most ten of the clients that were watched, "
      + `evenly from the highest last score to the lowest.${run}`);
  }
  if (timelines.length) {
    fill("candidates", timelines, "How many of the watched clients are candidates in each round, and why the others are not: "
      + "another is certainly more likely to answer in time (eliminated), or certainly as good in validity and utility (dominated)." + run);
  }
  if (planes.length) makePlanes(document.getElementById("candidates"), planes);
}

function fill(id, charts, hint) {
  const section = document.getElementById(id);
  section.hidden = false;
  const grid = element("div", { class: "charts" });
  section.append(element("p", { class: "hint" }, hint), grid);
  for (const chart of charts) makeChart(grid, chart);
}

// The plane of validity and utility: a dot for each client, or a cell for several, and the Pareto front.
const LEFT = 48, BOTTOM = 40, EDGE = 8, DOT = 4;

function makePlanes(section, planes) {
  section.append(element("h3", {}, "By validity and utility"), element("p", { class: "hint" },
    "Where clients are by validity (to the right) and utility (upwards), and how long they were candidates and how often they were chosen. "
    + (planes.some((plane) => plane.xEdges) ? "A cell is the mean of its clients; it is blank where there are none. " : "")
    + (planes.every((plane) => plane.truth) ? "The line is the Pareto front." : "The line is the Pareto front of those who are still candidates.")));
  const grid = element("div", { class: "planes" });
  section.append(grid);
  for (const [key, what, power] of [["lasting", "Rounds as a candidate", 1], ["chosen", "Times chosen", 0.5]]) {
    const most = Math.max(...planes.flatMap((plane) => plane[key])) || 1;  // null counts as 0
    for (const plane of planes) makePlane(grid, plane, { key, what, most, power });
  }
}

function makePlane(grid, plane, shade) {
  const title = `${shade.what}: ${data.policies[plane.policy]}`;
  const canvas = element("canvas", { role: "img",
    "aria-label": `${title}, of ${number(plane.num, 9)} clients by ${plane.xTitle} and ${plane.yTitle}; ${number(plane.front.length, 9)} of them Pareto-optimal` });
  const scale = element("canvas", { width: 128, height: 1, "aria-hidden": "true" });
  const host = element("div", { class: "map plane", "data-plane": `${shade.key}-${plane.policy}` },
    element("h3", { title }, title), canvas,
    element("div", { class: "scale" }, element("span", {}, "0"), scale, element("span", {}, number(shade.most, 3))));
  grid.append(host);
  const limits = [extent(plane.xEdges ?? plane.x), extent(plane.yEdges ?? plane.y)];

  /** From validity and utility to pixels of the style sheet, and their inverse. */
  const frame = () => ({ width: canvas.clientWidth - LEFT - EDGE, height: canvas.clientHeight - BOTTOM - EDGE });
  const across = (x) => LEFT + (x - limits[0][0]) / (limits[0][1] - limits[0][0]) * frame().width;
  const down = (y) => EDGE + (limits[1][1] - y) / (limits[1][1] - limits[1][0]) * frame().height;

  keepDrawn(host, canvas, plane.policy, (ctx) => {
    const { width, height } = frame();
    if (width <= 0) return;
    drawFrame(ctx, limits.flat(), across, down, 40);
    drawTitles(ctx, plane, width, height);
    plane[shade.key].forEach((value, at) => {
      if (value == null) return;
      ctx.fillStyle = tint(value, shade);
      if (plane.xEdges) {
        const [left, right, bottom, top] = cell(plane, at);
        ctx.fillRect(across(left), down(top), across(right) - across(left) + 0.5, down(bottom) - down(top) + 0.5);
      } else {
        ctx.beginPath();
        ctx.arc(across(plane.x[at]), down(plane.y[at]), DOT, 0, 2 * Math.PI);
        ctx.fill();
        ctx.strokeStyle = themed("--muted");
        ctx.lineWidth = 0.5;
        ctx.stroke();
      }
    });
    drawFront(ctx, plane.front, across, down, { left: LEFT, bottom: EDGE + height });
    paintScale(scale, shade.power);
  });
  tellAt(host, canvas, (x, y) => {
    const at = plane.xEdges ? cellAt(plane, x, y, across, down) : nearest(plane, x, y, across, down);
    if (at == null || plane[shade.key][at] == null) return null;
    const whole = (edges) => `${number(edges[0], 3)} … ${number(edges[1], 3)}`;
    const [name, where] = plane.xEdges
      ? ["mean of a cell", [whole(cell(plane, at).slice(0, 2)), whole(cell(plane, at).slice(2))]]
      : [`client ${plane.clients[at]}`, [number(plane.x[at], 3), number(plane.y[at], 3)]];
    return [name, [
      ["", "validity", where[0]], ["", "utility", where[1]],
      ["", "rounds as a candidate", `${number(plane.lasting[at], 3)} of ${number(plane.mostRounds, 9)}`],
      ["", "times chosen", number(plane.chosen[at], 3)],
    ]];
  });
}

/** The range of numbers with a margin, so that nothing lies on the axes. */
function extent(values) {
  const low = Math.min(...values), high = Math.max(...values);
  const margin = 0.03 * (high - low) || 0.5;
  return [low - margin, high + margin];
}

function drawTitles(ctx, plane, width, height) {
  ctx.textAlign = "center";
  ctx.textBaseline = "top";
  ctx.fillText(plane.xTitle, LEFT + width / 2, EDGE + height + 23);
  ctx.save();
  ctx.translate(7, EDGE + height / 2);
  ctx.rotate(-Math.PI / 2);
  ctx.textBaseline = "middle";
  ctx.fillText(plane.yTitle, 0, 0);
  ctx.restore();
}

/** The edge of what is dominated, from one axis to the other. */
function drawFront(ctx, front, across, down, { left, bottom }) {
  if (!front.length) return;
  ctx.strokeStyle = colour(1);
  ctx.lineWidth = 2;
  ctx.beginPath();
  ctx.moveTo(left, down(front[0][1]));
  front.forEach(([x, y], at) => {
    ctx.lineTo(across(x), down(y));
    ctx.lineTo(across(x), at + 1 < front.length ? down(front[at + 1][1]) : bottom);
  });
  ctx.stroke();
}

/** Left, right, bottom and top of a cell; they are counted from the lower left, row by row. */
function cell(plane, at) {
  const count = plane.xEdges.length - 1, column = at % count, row = Math.floor(at / count);
  return [plane.xEdges[column], plane.xEdges[column + 1], plane.yEdges[row], plane.yEdges[row + 1]];
}

function cellAt(plane, x, y, across, down) {
  const count = plane.xEdges.length - 1;
  const column = plane.xEdges.findLastIndex((edge) => across(edge) <= x);
  const row = plane.yEdges.findLastIndex((edge) => down(edge) >= y);
  return column < 0 || row < 0 || column >= count || row >= count ? null : row * count + column;
}

function tint(value, { most, power }) { return `rgb(${rgb(VIRIDIS, (value / most) ** power).join()})`; }
