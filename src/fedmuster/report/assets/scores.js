// What policies think of clients: their scores over rounds, and who remains a candidate.
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
