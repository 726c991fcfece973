// Without rounds: what became of clients' work, how old answers are, and who trains when.
const FATES = ["--used", "--lost", "--gone", "--open"];
const LANE = 15, SLOT_NAMES = 34, BELOW = 26, ABOVE = 10;

function makeJobs() {
  if (!data.jobs) return;
  makeWork(data.jobs.work);
  const { names, shares } = data.jobs.ages;
  if (names.length) drawBars(document.getElementById("ages"), { names, what: "Age", shares });
  makeSlots(data.jobs.slots);
}

/** A key of the colours of what became of jobs. */
function fateKeys() {
  return element("div", { class: "keys" }, ...data.jobs.fates.map((words, fate) => {
    const box = element("span", { class: "fate" });
    box.style.background = `var(${FATES[fate]})`;
    return element("span", {}, box, words);
  }));
}

/** A bar for each policy, divided by what became of its client updates, and another for its client-seconds. */
function makeWork({ updates, seconds }) {
  const section = document.getElementById("work");
  section.hidden = false;
  section.append(element("p", { class: "hint" }, "Means over the seeds. In rounds the journal does not say how long each client worked."), fateKeys());
  const grid = element("div", { class: "charts" });
  section.append(grid);
  for (const [title, amounts] of [["Client updates", updates], ["Client-seconds of work", seconds]]) {
    const most = Math.max(...amounts.filter((own) => own).map(sum), 1e-9);
    const host = element("div", { class: "map" }, element("h3", {}, title));
    const box = tip(host);
    amounts.forEach((own, policy) => {
      const bar = element("div", { class: "divided", tabindex: 0, role: "img", "data-work": policy });
      const rows = own ? own.map((amount, fate) => ["", data.jobs.fates[fate], `${number(amount)} (${percent(amount / sum(own))})`]) : [];
      bar.setAttribute("aria-label", `${data.policies[policy]}: `
        + (own ? rows.map(([, words, amount]) => `${words} ${amount}`).join(", ") : "not known in rounds"));
      for (const [fate, amount] of (own ?? []).entries()) {
        const part = element("span");
        part.style.width = `${100 * amount / most}%`;
        part.style.background = `var(${FATES[fate]})`;
        bar.append(part);
      }
      if (!own) bar.append(element("em", {}, "not known in rounds"));
      const show = () => rows.length && box.show(20, bar.offsetTop + bar.offsetHeight, data.policies[policy], rows);
      for (const event of ["pointerenter", "focus"]) bar.addEventListener(event, show);
      for (const event of ["pointerleave", "blur"]) bar.addEventListener(event, box.hide);
      const row = element("div", { class: "work" }, element("span", { title: data.policies[policy] }, data.policies[policy]), bar);
      host.insertBefore(row, box.box);
      follow(() => { row.hidden = !shown[policy]; });
    });
    grid.append(host);
  }
}

/** A chart for each policy without rounds: a row is a slot, a bar is a job. */
function makeSlots(charts) {
  if (!charts.length) return;
  const section = document.getElementById("slots");
  section.hidden = false;
  section.append(element("p", { class: "hint" },
    `A row is a slot, a bar a job with the number of its client; a tick above is an aggregation. Of seed ${data.jobs.seed}, from the middle of the run.`), fateKeys());
  for (const chart of charts) {
    const label = data.policies[chart.policy];
    const hidden = chart.slots < chart.allSlots ? ` (the first ${chart.slots} of ${number(chart.allSlots, 9)} slots)` : "";
    const canvas = element("canvas", { role: "img", tabindex: 0,
      "aria-label": `${label}: ${chart.client.length} jobs in ${chart.slots} slots from ${number(chart.begin, 5)} s to ${number(chart.end, 5)} s` });
    canvas.style.height = `${ABOVE + LANE * chart.slots + BELOW}px`;
    const host = element("div", { class: "map slots", "data-slots": chart.policy });
    host.append(element("h3", { title: label }, label + hidden), canvas);
    section.append(host);
    const across = (width) => (at) => SLOT_NAMES + (at - chart.begin) / (chart.end - chart.begin) * (width - SLOT_NAMES - 8);
    const end = (job) => Math.min(chart.to[job] ?? Infinity, chart.end);
    keepDrawn(host, canvas, chart.policy, (ctx) => drawSlots(ctx, chart, across(canvas.clientWidth), end));
    tellAt(host, canvas, (x, y, width) => {
      const place = across(width), slot = chart.slots - 1 - Math.floor((y - ABOVE) / LANE);
      const job = chart.client.findIndex((_, at) => chart.slot[at] === slot
        && place(Math.max(chart.from[at], chart.begin)) <= x && x < place(end(at)));
      if (job < 0) return null;
      return [`client ${chart.client[job]}`, [
        ["", "asked", `${number(chart.from[job], 6)} s`],
        ["", "ended", chart.to[job] == null ? "not yet" : `${number(chart.to[job], 6)} s`],
        ["", "", data.jobs.fates[chart.fate[job]]],
      ]];
    });
  }
}

function drawSlots(ctx, chart, across, end) {
  const bottom = ABOVE + LANE * chart.slots;
  const top = (slot) => bottom - LANE * (slot + 1);
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  chart.client.forEach((client, job) => {
    const from = across(Math.max(chart.from[job], chart.begin)), to = across(end(job));
    ctx.fillStyle = themed(FATES[chart.fate[job]]);
    ctx.fillRect(from, top(chart.slot[job]) + 1, Math.max(to - from - 1, 0.5), LANE - 2);
    if (ctx.measureText(client).width + 4 > to - from) return;
    ctx.fillStyle = themed("--on-fate");
    ctx.textAlign = "center";
    ctx.fillText(client, (from + to) / 2, top(chart.slot[job]) + LANE / 2);
  });
  ctx.fillStyle = ctx.strokeStyle = themed("--muted");
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (const at of chart.aggregated) {
    ctx.moveTo(across(at), 1);
    ctx.lineTo(across(at), ABOVE - 2);
  }
  ctx.moveTo(across(chart.begin), bottom + 0.5);
  ctx.lineTo(across(chart.end), bottom + 0.5);
  ctx.stroke();
  ctx.textBaseline = "top";
  ctx.textAlign = "center";
  const times = marks(chart.begin, chart.end, (across(chart.end) - across(chart.begin)) / 90);
  for (const at of times) {
    const text = `${number(at, 6)} s`, room = across(chart.end) + 8 - ctx.measureText(text).width / 2;
    ctx.fillText(text, Math.min(across(at), room), bottom + 6);
  }
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  for (let slot = 0; slot < chart.slots; slot += Math.ceil(chart.slots / 10)) {
    ctx.fillText(slot + 1, SLOT_NAMES - 6, top(slot) + LANE / 2);
  }
}
