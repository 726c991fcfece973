// The table of clients: sorted, searched and turned page by page, so that 10,000 rows stay quick.
const PAGE = 25;
const NAMES = { client: "Client", identity: "Identity", group: "Group", latency: "Typical latency (s)", samples: "Samples", quality: "Quality", price: "Price", rejected: "Rejected updates" };

function makeClients() {
  const section = document.getElementById("clients");
  section.hidden = false;
  const { seeds, allSeeds, clients } = data.clients;
  const state = { seed: 0, sort: "client", down: false, words: "", page: 0 };
  const search = element("input", { type: "search", id: "client-search", autocomplete: "off", spellcheck: "false",
    placeholder: "17 or latency<0.5" });
  const pick = element("select", { id: "client-seed" }, ...seeds.map((one, at) => element("option", { value: at }, String(one.seed))));
  const count = element("span", { class: "count", role: "status" });
  const back = element("button", { type: "button" }, "← Previous");
  const on = element("button", { type: "button" }, "Next →");
  const head = element("tr"), body = element("tbody");
  const sample = seeds[0].client.length < clients
    ? ` Shown is a sample of ${number(seeds[0].client.length, 9)} of the ${number(clients, 9)} clients, evenly from the ${data.ranking[0]}est to the ${data.ranking[1]}est.` : "";
  const some = seeds.length < allSeeds ? ` Seeds shown: ${seeds.length} of ${allSeeds}.` : "";
  section.append(
    element("p", { class: "hint" }, "Who the clients of a seed are and how often each policy chose them. Search for an id, or for conditions such as "
      + `group=0, latency<0.5 or ${quoted(data.policies[0])}>3, separated by spaces; click a heading to sort.${sample}${some}`
      + (sample || some ? " All of them are in clients.csv." : "")),
    element("div", { class: "tools" }, element("label", {}, "Search", search),
      ...(seeds.length > 1 ? [element("label", {}, "Seed", pick)] : []), count, back, on),
    element("div", { class: "scroll" }, element("table", { class: "client-table" }, element("thead", {}, head), body)));

  const columns = () => {
    const own = seeds[state.seed];
    return [
      { key: "client", name: NAMES.client, values: own.client },
      ...Object.entries(own.columns).map(([key, values]) => ({ key, name: NAMES[key], values })),
      ...data.policies.map((label, policy) => ({ key: `policy ${policy}`, label, name: `Chosen by ${label}`, values: own.chosen[policy] }))
        .filter((_, policy) => shown[policy]),
    ];
  };

  function update(focus) {
    const all = columns();
    const by = all.find((column) => column.key === state.sort) ?? all[0];
    const rows = matching(all, state.words);
    const rank = (value) => (value == null ? Infinity : state.down ? -value : value);
    const compare = (one, two) => (typeof one === "string" ? (state.down ? -1 : 1) * one.localeCompare(two) : rank(one) - rank(two));
    rows.sort((one, two) => compare(by.values[one], by.values[two]) || one - two);
    const pages = Math.max(Math.ceil(rows.length / PAGE), 1);
    state.page = Math.min(Math.max(state.page, 0), pages - 1);
    const first = state.page * PAGE;
    head.replaceChildren(...all.map((column) => heading(column, by)));
    body.replaceChildren(...rows.slice(first, first + PAGE).map((row) => element("tr", {}, ...all.map((column, place) => (
      place ? element("td", {}, shownValue(column.values[row])) : element("th", { scope: "row" }, String(column.values[row])))))));
    count.textContent = rows.length
      ? `${number(first + 1, 9)}–${number(Math.min(first + PAGE, rows.length), 9)} of ${number(rows.length, 9)}` : "none found";
    back.disabled = state.page === 0;
    on.disabled = state.page === pages - 1;
    if (focus) head.querySelector(`[data-sort="${focus}"] button`).focus();
  }

  function heading(column, by) {
    const button = element("button", { type: "button" }, column.name);
    button.addEventListener("click", () => {
      // Counts are first wanted from the top, everything else from the bottom.
      state.down = state.sort === column.key ? !state.down : column.key.startsWith("policy") || column.key === "rejected";
      state.sort = column.key;
      state.page = 0;
      update(column.key);
    });
    const order = column === by ? (state.down ? "descending" : "ascending") : "none";
    return element("th", { scope: "col", "aria-sort": order, "data-sort": column.key }, button);
  }

  search.addEventListener("input", () => { state.words = search.value; state.page = 0; update(); });
  pick.addEventListener("change", () => { state.seed = Number(pick.value); state.page = 0; update(); });
  back.addEventListener("click", () => { state.page--; update(); });
  on.addEventListener("click", () => { state.page++; update(); });
  follow(() => update());
}

const OPERATORS = {
  "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b, "=": (a, b) => a === b,
};

function shownValue(value) { return typeof value === "string" ? value : number(value); }

/** The rows that meet every word: a bare one is the beginning of a client's id or identity. */
function matching(columns, words) {
  const tests = (words.match(/(?:"[^"]*"|[^\s"])+/g) ?? []).map((word) => {
    const condition = /^(.+?)(<=|>=|<|>|=)(-?[\d.]+(?:e-?\d+)?)$/i.exec(word);
    if (!condition) {
      const named = columns.filter((column) => column.key === "client" || column.key === "identity");
      return (row) => named.some((column) => String(column.values[row]).startsWith(word));
    }
    const plain = (name) => name.replaceAll('"', "").toLowerCase();
    const found = columns.find((column) => plain(column.label ?? column.key) === plain(condition[1]));
    const meets = OPERATORS[condition[2]], bound = Number(condition[3]);
    return found ? (row) => found.values[row] != null && meets(found.values[row], bound) : () => false;
  });
  return columns[0].values.map((_, row) => row).filter((row) => tests.every((test) => test(row)));
}

function quoted(label) { return /[\s<>="]/.test(label) ? `"${label.replaceAll('"', "")}"` : label; }
