// The one switch for all charts and tables: which policies are shown, and how they look.
const COLOURS = 8, SAME_DASH = 4;
const DASHES = [[], [7, 3], [2, 2], [9, 3, 2, 3]];
let bandsShown = true;
const shown = data.policies.map(() => true);
const listeners = [];

/** Call `listener` now, whenever a policy is switched, and when the colours change. */
function follow(listener) {
  listeners.push(listener);
  listener();
}

function announce() {
  for (const listener of listeners) listener();
}

function themed(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function colour(policy) { return themed(`--policy-${policy % COLOURS}`); }

function dash(policy) { return DASHES[Math.floor(policy / SAME_DASH) % DASHES.length]; }

/** A short piece of the policy's line. */
function swatch(policy) {
  const space = "http://www.w3.org/2000/svg";
  const image = document.createElementNS(space, "svg");
  for (const [name, value] of [["width", 22], ["height", 10], ["class", "swatch"], ["aria-hidden", "true"]]) {
    image.setAttribute(name, value);
  }
  const line = document.createElementNS(space, "line");
  const look = { x1: 0, x2: 22, y1: 5, y2: 5, stroke: `var(--policy-${policy % COLOURS})`, "stroke-width": 3 };
  for (const [name, value] of Object.entries(look)) line.setAttribute(name, value);
  if (dash(policy).length) line.setAttribute("stroke-dasharray", dash(policy).join(" "));
  image.append(line);
  return image;
}

function makeSwitches() {
  const form = document.getElementById("policies");
  const boxes = data.policies.map((label, policy) => {
    const box = element("input", { type: "checkbox", checked: true, "data-switch": policy });
    box.addEventListener("change", () => { shown[policy] = box.checked; announce(); });
    form.append(element("label", {}, box, swatch(policy), element("span", {}, label)));
    return box;
  });
  const setAll = (wanted) => {
    boxes.forEach((box, policy) => { box.checked = shown[policy] = wanted; });
    announce();
  };
  if (boxes.length > 2) {
    for (const [name, wanted] of [["All", true], ["None", false]]) {
      const button = element("button", { type: "button" }, name);
      button.addEventListener("click", () => setAll(wanted));
      form.append(button);
    }
  }
  if (data.seeds > 1 && data.charts.length) {
    const bands = element("input", { type: "checkbox", checked: true, id: "bands" });
    bands.addEventListener("change", () => { bandsShown = bands.checked; announce(); });
    form.append(element("label", { class: "apart" }, bands, element("span", {}, "Bands")));
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  form.reset();  // a browser may remember boxes of an earlier visit
  form.hidden = false;
  const rows = [...document.querySelectorAll("tr[data-policy]")];
  follow(() => rows.forEach((row) => { row.hidden = !shown[data.policies.indexOf(row.dataset.policy)]; }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", announce);
}
