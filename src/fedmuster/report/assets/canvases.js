// Maps on canvases: their frame, their colours, and what the pointer is over.
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
const NEAR = 12;

/** Draw on a canvas whenever its size, the colours or the policies shown change; hide it with its policy. */
function keepDrawn(host, canvas, policy, draw) {
  const redraw = () => {
    if (!canvas.clientWidth) return;
    canvas.width = canvas.clientWidth * devicePixelRatio;
    canvas.height = canvas.clientHeight * devicePixelRatio;
    const ctx = canvas.getContext("2d");
    ctx.scale(devicePixelRatio, devicePixelRatio);
    draw(ctx);
  };
  new ResizeObserver(redraw).observe(canvas);
  follow(() => {
    host.hidden = !shown[policy];
    if (!host.hidden) redraw();
  });
}

/** Show `tell(x, y, width, height)`, a title and rows, in a box beside the pointer; nothing if it is null. */
function tellAt(host, canvas, tell) {
  const box = tip(host);
  canvas.addEventListener("pointermove", (event) => {
    const frame = canvas.getBoundingClientRect();
    const x = event.clientX - frame.left, y = event.clientY - frame.top;
    const told = tell(x, y, frame.width, frame.height);
    if (told) box.show(x, canvas.offsetTop + y + 18, ...told);
    else box.hide();
  });
  canvas.addEventListener("pointerleave", box.hide);
}

/** A frame with numbers below and to the left, about `room` pixels apart. */
function drawFrame(ctx, [left, right, bottom, top], across, down, room) {
  ctx.font = "12px system-ui, sans-serif";
  ctx.fillStyle = themed("--muted");
  ctx.strokeStyle = themed("--rule");
  ctx.lineWidth = 1;
  const width = across(right) - across(left), height = down(bottom) - down(top);
  ctx.strokeRect(across(left), down(top), width, height);
  ctx.textAlign = "center";
  ctx.textBaseline = "top";
  for (const x of marks(left, right, width / 60)) ctx.fillText(number(x), across(x), down(bottom) + 5);
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  for (const y of marks(bottom, top, height / room)) ctx.fillText(number(y), across(left) - 5, down(y));
}

/** About `count` round numbers between low and high. */
function marks(low, high, count) {
  const rough = (high - low) / Math.max(count, 2);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough);
  const first = Math.ceil(low / step), last = Math.floor(high / step);
  return Array.from({ length: last - first + 1 }, (_, at) => Number(((first + at) * step).toPrecision(12)));
}

function nearest(plane, x, y, across, down) {
  const far = plane.x.map((_, at) => Math.hypot(across(plane.x[at]) - x, down(plane.y[at]) - y));
  const best = far.indexOf(Math.min(...far));
  return far[best] <= NEAR ? best : null;
}

/** The colour at a part of the way through a palette. */
function rgb(palette, part) {
  const place = Math.min(Math.max(part, 0), 1) * (palette.length - 1);
  const at = Math.min(Math.floor(place), palette.length - 2);
  const between = place - at;
  const channel = (text, which) => parseInt(text.slice(1 + 2 * which, 3 + 2 * which), 16);
  return [0, 1, 2].map((which) => Math.round(
    channel(palette[at], which) * (1 - between) + channel(palette[at + 1], which) * between));
}

function paint(canvas, bytes, table) {
  const image = new ImageData(canvas.width, canvas.height);
  bytes.forEach((code, at) => {
    image.data.set(table[code], 4 * at);
    image.data[4 * at + 3] = 255;
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** Paint a canvas one pixel high with all colours from none to the most. */
function paintScale(scale, power = 1) {
  const last = scale.width - 1;
  paint(scale, Uint8Array.from({ length: scale.width }, (_, at) => at),
    Array.from({ length: scale.width }, (_, at) => rgb(VIRIDIS, (at / last) ** power)));
}
