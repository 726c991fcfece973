// Which clients are chosen when: a byte a cell, see _heat_maps in page_data.py.
const PER_DOUBLING = 32, EQUAL = 128, DOUBLINGS = 3;
// ColorBrewer's PuOr, from rarely (orange) to often (purple); in the dark its middle is dark.
const LIGHT = ["#7f3b08", "#b35806", "#e08214", "#fdb863", "#fee0b6", "#f7f7f7", "#d8daeb", "#b2abd2", "#8073ac", "#542788", "#2d004b"];
const DARK = ["#d9731a", "#b85f14", "#96500f", "#704019", "#48311f", "#23262c", "#3b3760", "#5f52a0", "#8878d0", "#b5a9f2", "#e4dcff"];

function makeMaps() {
  const { rows, bins, clients, rounds, codes } = data.maps;
  const section = document.getElementById("maps");
  section.hidden = false;
  const [first, last, order] = data.ranking;
  const step = data.jobs?.step ?? "round";
  section.append(element("p", { class: "hint" },
    `Clients from ${first} (top) to ${last}, ${step}s from left to right. Colours: how often, as a multiple of an equal share.`));
  const scale = element("canvas", { width: 2 * DOUBLINGS * PER_DOUBLING + 1, height: 1, "aria-hidden": "true" });
  section.append(element("div", { class: "scale" }, element("span", {}, `1/${2 ** DOUBLINGS} or less`), scale,
    element("span", {}, `${2 ** DOUBLINGS} or more times an equal share`)));
  const grid = element("div", { class: "maps" });
  section.append(grid);
  const maps = codes.map((code, policy) => {
    const bytes = Uint8Array.from(atob(code), (letter) => letter.charCodeAt(0));
    const label = data.policies[policy];
    const canvas = element("canvas", { width: bins, height: rows, role: "img",
      "aria-label": `Heat map of ${label}: how often clients from ${first} (top) to ${last} are chosen, over ${rounds[policy]} ${step}s` });
    const host = element("div", { class: "map", "data-map": policy });
    host.append(element("h3", { title: label }, label), canvas, element("div", { class: "ends", "aria-hidden": "true" },
      element("span", {}, `${step} 1`), element("span", {}, number(rounds[policy], 9))));
    grid.append(host);
    tellAt(host, canvas, (x, y, width, height) => {
      const within = (part, count) => Math.min(Math.max(Math.floor(part * count), 0), count - 1);
      const bin = within(x / width, bins), row = within(y / height, rows);
      const code = bytes[row * bins + bin];
      const often = code === 0 ? "never" : `${number(2 ** ((code - EQUAL) / PER_DOUBLING), 2)} × an equal share`;
      return [often, [
        ["", "clients", span(row, rows, clients) + ` of ${number(clients, 9)} by ${order}`],
        ["", `${step}s`, span(bin, bins, rounds[policy])],
      ]];
    });
    return { host, canvas, bytes };
  });
  follow(() => {
    const palette = matchMedia("(prefers-color-scheme: dark)").matches ? DARK : LIGHT;
    const table = Array.from({ length: 256 }, (_, code) => shade(palette, code));
    maps.forEach(({ host, canvas, bytes }, policy) => {
      host.hidden = !shown[policy];
      if (shown[policy]) paint(canvas, bytes, table);
    });
    paint(scale, Uint8Array.from({ length: scale.width }, (_, at) => EQUAL - DOUBLINGS * PER_DOUBLING + at), table);
  });
}

/** The places, counted from 1, that part `at` of `parts` holds of `count` things. */
function span(at, parts, count) {
  const first = Math.ceil(at * count / parts) + 1;
  const last = Math.max(Math.ceil((at + 1) * count / parts), first);
  return first === last ? number(first, 9) : `${number(first, 9)}–${number(last, 9)}`;
}

function shade(palette, code) {
  return rgb(palette, code === 0 ? 0 : 0.5 + (code - EQUAL) / (2 * DOUBLINGS * PER_DOUBLING));
}
