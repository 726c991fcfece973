// The network from above: edge servers and their reach, clients, and where they were when they were chosen.
const MARGIN = 34, FRAME = 6, SMALLEST = 0.2, ROOM = 0.5;

function makeNetwork() {
  if (!data.network) return;
  const { map, budgets } = data.network;
  if (map) makeNetworkMaps(map);
  if (budgets) makeBudgets(budgets);
}

function makeBudgets({ check, percents, mean, low, high }) {
  const section = document.getElementById("budgets");
  section.append(element("p", { class: "hint" }, `The share of its budget that each edge server spent in a round, on average over rounds and seeds. ${check}`));
  drawBars(section, {
    names: mean[0].map((_, edge) => `edge ${edge}`), what: "Budget of", shares: mean, mark: 1,
    tell: (share, policy, edge) => `${percent(share)} (${percents[0]}–${percents[1]} % of rounds: ${percent(low[policy][edge])} – ${percent(high[policy][edge])})`,
  });
}

function makeNetworkMaps(map) {
  const section = document.getElementById("network");
  section.hidden = false;
  const { clients, choices } = map.policies[0];
  const run = data.seeds > 1 ? ` Shown is seed ${map.seed}.` : "";
  section.append(element("p", { class: "hint" },
    "Triangles are edge servers" + (map.radius ? ", discs their reach" : "") + ". "
    + (clients ? `Dots are ${clients.cell ? "squares with all clients in them" : "clients"}, at their places in round 1; their area is how often they were chosen, hollow if never. ` : "")
    + (choices ? "Choices: the squares in which clients were when they were chosen. " : clients ? "Nobody moved. " : "") + `Axes in kilometres.${run}`));
  const scale = element("canvas", { width: 128, height: 1, "aria-hidden": "true" });
  section.append(element("div", { class: "scale" }, element("span", {}, percent(map.success[0])), scale,
    element("span", {}, `${percent(map.success[1])} of the chosen were in time`)));
  paintScale(scale);
  for (const [layer, what] of [["clients", "Clients"], ["choices", "Choices"]]) {
    const drawn = map.policies.filter((own) => own[layer]);
    const grid = element("div", { class: "planes" });
    section.append(grid);
    const most = Math.max(1, ...drawn.flatMap((own) => own[layer].chosen));
    for (const own of drawn) makeNetworkMap(grid, map, { layer, title: `${what}: ${data.policies[own.policy]}`, policy: own.policy, dots: own[layer], most });
  }
}

function makeNetworkMap(grid, map, { layer, title, policy, dots, most }) {
  const [left, right, bottom, top] = map.box;
  const canvas = element("canvas", { role: "img", "aria-label":
    `${title}: map of ${number(map.edges.length, 9)} edge servers and ${number(dots.x.length, 9)} ${dots.cell ? "squares" : "clients"}, `
    + `chosen ${number(sum(dots.chosen), 9)} times, in time ${number(sum(dots.inTime), 9)} times` });
  const host = element("div", { class: "map network", "data-network": `${layer}-${policy}` }, element("h3", { title }, title), canvas);
  canvas.style.aspectRatio = `${Math.min(Math.max((right - left) / (top - bottom), 0.5), 3)}`;
  grid.append(host);
  const largest = dots.cell ?? Math.sqrt(ROOM * (right - left) * (top - bottom) / dots.x.length);
  const radius = (at) => largest / 2 * Math.max(Math.sqrt(dots.chosen[at] / most), SMALLEST);

  /** Pixels of the style sheet in a kilometre: the same in both directions. */
  const unit = () => Math.min((canvas.clientWidth - MARGIN - FRAME) / (right - left), (canvas.clientHeight - MARGIN - FRAME) / (top - bottom));
  const across = (x) => MARGIN + (x - left) * unit();
  const down = (y) => FRAME + (top - y) * unit();

  keepDrawn(host, canvas, policy, (ctx) => {
    if (unit() <= 0) return;
    drawFrame(ctx, map.box, across, down, 45);
    const circle = (x, y, r) => { ctx.beginPath(); ctx.arc(across(x), down(y), r, 0, 2 * Math.PI); };
    for (const [x, y] of map.radius ? map.edges : []) {
      circle(x, y, map.radius * unit());
      ctx.fillStyle = themed("--accent") + "14";
      ctx.fill();
      ctx.strokeStyle = themed("--accent") + "70";
      ctx.lineWidth = 1;
      ctx.stroke();
    }
    dots.x.forEach((x, at) => {
      circle(x, dots.y[at], Math.max(radius(at) * unit(), 1.5));
      ctx.strokeStyle = themed("--muted");
      ctx.lineWidth = dots.chosen[at] ? 0.5 : 1;
      if (dots.chosen[at]) {
        ctx.fillStyle = `rgb(${rgb(VIRIDIS, (dots.inTime[at] / dots.chosen[at] - map.success[0]) / (map.success[1] - map.success[0])).join()})`;
        ctx.fill();
      }
      ctx.stroke();
    });
    map.edges.forEach(([x, y], edge) => drawEdge(ctx, across(x), down(y), edge));
  });
  tellAt(host, canvas, (x, y) => {
    const at = nearest(dots, x, y, across, down);
    if (at == null) return null;
    const share = dots.chosen[at] ? ` (${percent(dots.inTime[at] / dots.chosen[at])})` : "";
    return [dots.clients ? `client ${dots.clients[at]}` : `a square of ${number(dots.cell, 2)} km`, [
      ["", "times chosen", number(dots.chosen[at], 9)], ["", "in time", number(dots.inTime[at], 9) + share],
      ["", "place", `${number(dots.x[at], 3)}, ${number(dots.y[at], 3)} km`],
    ]];
  });
}

/** A triangle with the edge's number beside it. */
function drawEdge(ctx, x, y, edge) {
  ctx.fillStyle = themed("--policy-1");
  ctx.strokeStyle = themed("--page");
  ctx.lineWidth = 3;
  ctx.beginPath();
  ctx.moveTo(x, y - 6);
  ctx.lineTo(x + 5.5, y + 4);
  ctx.lineTo(x - 5.5, y + 4);
  ctx.closePath();
  ctx.stroke();
  ctx.fill();
  ctx.font = "bold 11px system-ui, sans-serif";
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  ctx.strokeText(String(edge), x + 5, y - 2);
  ctx.fillText(String(edge), x + 5, y - 2);
}

function sum(values) { return values.reduce((total, value) => total + value, 0); }
