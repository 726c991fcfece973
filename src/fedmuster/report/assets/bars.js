// Shares as groups of bars: how often a client of each speed group is chosen, what edge servers spent.
// A policy that always asks the same, or everyone, does not press the others flat: its bars are cut.
const TALL = 4;

function makeBars() {
  if (!data.groups) return;
  const { latencies, shares, equal } = data.groups;
  drawBars(document.getElementById("groups"), { names: latencies.map((latency) => `${number(latency, 3)} s`), what: "Latency", shares, mark: equal });
}

/** A group of bars for each name, a bar for each policy that has shares, and a dashed line at `mark`, if there is one. */
function drawBars(section, { names, what, shares, mark = null, tell = (share) => percent(share) }) {
  section.hidden = false;
  const host = element("div", { class: "map" });
  const plot = element("div", { class: "bars" + (names.length > 6 ? " crowded" : "") });
  host.append(plot);
  section.append(host);
  const box = tip(host);
  const every = Math.ceil(names.length / 12);
  const seen = (group) => shares.map((own, policy) => [policy, own?.[group]]).filter(([policy, share]) => shown[policy] && share != null);
  const groups = names.map((name, group) => {
    const column = element("div", { class: "group", tabindex: 0 });
    column.append(element("span", { class: "group-name" }, group % every ? "" : name));
    const show = () => box.show(
      column.offsetLeft + column.offsetWidth / 2, 20, name,
      seen(group).sort((one, two) => two[1] - one[1])
        .map(([policy, share]) => [swatch(policy), data.policies[policy], tell(share, policy, group)]));
    for (const event of ["pointerenter", "focus"]) column.addEventListener(event, show);
    for (const event of ["pointerleave", "blur"]) column.addEventListener(event, box.hide);
    return column;
  });
  follow(() => {
    const visible = shares.filter((own, policy) => own && shown[policy]);
    const modest = visible.filter((own) => mark == null || Math.max(...own) <= TALL * mark);
    const fitted = modest.length ? modest : visible;
    const top = Math.min(roundUp(Math.max(mark ?? 0, ...fitted.flat()) * 1.02), 1) || 1;  // if nobody is ever chosen
    const lines = [0, 0.25, 0.5, 0.75, 1].map((part) => line(part, percent(part * top)));
    if (mark != null) lines.push(line(mark / top, "", "line equal"));
    plot.replaceChildren(...lines, ...groups);
    groups.forEach((column, group) => {
      column.querySelectorAll(".bar").forEach((bar) => bar.remove());
      for (const [policy, share] of seen(group)) {
        const bar = element("div", { class: share > top ? "bar cut" : "bar", "data-bar": policy });
        bar.style.height = `${100 * Math.min(share / top, 1)}%`;
        bar.style.background = filling(policy);
        column.append(bar);
      }
      column.setAttribute("aria-label", `${what} ${names[group]}: `
        + seen(group).map(([policy, share]) => `${data.policies[policy]} ${percent(share)}`).join(", "));
    });
  });

  function line(part, name, kind = "line") {
    const made = element("div", { class: kind === "line" ? kind : "line equal", "aria-hidden": "true" }, element("span", {}, name));
    made.style.bottom = `calc(1.5rem + (100% - 1.5rem) * ${part})`;
    return made;
  }
}

/** The policy's colour; striped where it is the colour of an earlier one, too. */
function filling(policy) {
  const own = colour(policy);
  return policy < COLOURS ? own : `repeating-linear-gradient(45deg, ${own} 0 3px, transparent 3px 5px)`;
}

/** To the next of 1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8 times a power of ten, whose quarters are short. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10].find((step) => step * power >= value - 1e-12);
}
