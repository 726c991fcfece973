// How often a client of each speed group is chosen; the axis fits the policies that are shown.
function makeBars() {
  const { latencies, shares, equal } = data.groups;
  const section = document.getElementById("groups");
  section.hidden = false;
  const host = element("div", { class: "map" });
  const plot = element("div", { class: "bars" + (latencies.length > 6 ? " crowded" : "") });
  host.append(plot);
  section.append(host);
  const box = tip(host);
  const every = Math.ceil(latencies.length / 12);
  const groups = latencies.map((latency, group) => {
    const column = element("div", { class: "group", tabindex: 0 });
    column.append(element("span", { class: "group-name" }, group % every ? "" : `${number(latency, 3)} s`));
    const show = () => box.show(
      column.offsetLeft + column.offsetWidth / 2, 20, `${number(latency, 3)} s`,
      shares.map((own, policy) => [policy, own[group]])
        .filter(([policy]) => shown[policy])
        .sort((one, two) => two[1] - one[1])
        .map(([policy, share]) => [swatch(policy), data.policies[policy], percent(share)]));
    for (const event of ["pointerenter", "focus"]) column.addEventListener(event, show);
    for (const event of ["pointerleave", "blur"]) column.addEventListener(event, box.hide);
    return column;
  });
  follow(() => {
    const visible = shares.filter((_, policy) => shown[policy]);
    const top = Math.min(roundUp(Math.max(equal, ...visible.flat()) * 1.02), 1);
    const lines = [0, 0.25, 0.5, 0.75, 1].map((part) => line(part, percent(part * top)));
    plot.replaceChildren(...lines, line(equal / top, "", "line equal"), ...groups);
    groups.forEach((column, group) => {
      column.querySelectorAll(".bar").forEach((bar) => bar.remove());
      shares.forEach((own, policy) => {
        if (!shown[policy]) return;
        const bar = element("div", { class: "bar", "data-bar": policy });
        bar.style.height = `${100 * own[group] / top}%`;
        bar.style.background = colour(policy);
        column.append(bar);
      });
      column.setAttribute("aria-label", `Latency ${number(latencies[group], 3)} s: ` + shares
        .map((own, policy) => [policy, own[group]]).filter(([policy]) => shown[policy])
        .map(([policy, share]) => `${data.policies[policy]} ${percent(share)}`).join(", "));
    });
  });

  function line(part, name, kind = "line") {
    const made = element("div", { class: kind === "line" ? kind : "line equal", "aria-hidden": "true" }, element("span", {}, name));
    made.style.bottom = `calc(1.5rem + (100% - 1.5rem) * ${part})`;
    return made;
  }
}

/** To the next of 1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8 times a power of ten, whose quarters are short. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10].find((step) => step * power >= value - 1e-12);
}
