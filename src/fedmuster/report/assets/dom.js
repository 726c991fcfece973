// Elements, numbers and the box of values that follows the pointer.
const data = JSON.parse(document.getElementById("data").textContent);

/** An element; text is always text, so that no name can become markup. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function number(value, digits = 4) {
  if (value == null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2).replace("-", "−");
  return value.toLocaleString("en-GB", { maximumSignificantDigits: Math.max(digits, Math.ceil(Math.log10(size + 1))) })
    .replace("-", "−");
}

function percent(value, digits = 3) {
  return value == null ? "–" : number(100 * value, digits) + " %";
}

/** A box inside `host` that stays within it. */
function tip(host) {
  const box = element("div", { class: "tip", role: "status", hidden: true });
  host.append(box);
  return {
    box,
    show(left, top, title, rows) {
      const table = element("table");
      for (const [mark, name, value] of rows) {
        table.append(element("tr", {}, element("td", {}, mark), element("th", {}, name), element("td", {}, value)));
      }
      box.replaceChildren(element("strong", {}, title), table);
      box.hidden = false;
      const room = host.clientWidth - box.offsetWidth;
      const right = left + 14;
      box.style.left = (right <= room ? right : Math.max(0, left - box.offsetWidth - 14)) + "px";
      box.style.top = Math.max(0, Math.min(top - 10, host.clientHeight - box.offsetHeight)) + "px";
    },
    hide() { box.hidden = true; },
  };
}
