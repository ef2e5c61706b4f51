"use strict";
// Redraws the bandwidth figure. All numbers come from the WebAssembly module, which is the same model
// that the command uses; this file only maps sliders to settings and numbers to lines.
(async () => {
  const LANES = [1, 2, 4, 8, 16, 32];
  const SIZES = [128, 256, 512, 1024, 2048, 4096];
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c564b"];
  const DASHES = ["2 3", "5 4", "10 4", "10 3 2 3"];
  const NICS = ["simple", "kernel", "dpdk", "niq", "window"];
  const MIXES = ["write", "read", "read and write"];
  const PORTS = [40, 100, 200, 400];
  const element = (id) => document.getElementById(id);

  const bytes = Uint8Array.from(atob(element("model").dataset.wasm), (c) => c.charCodeAt(0));
  const { instance } = await WebAssembly.instantiate(bytes);
  const model = instance.exports;
  // What no slider sets: the read completion boundary in the low half, switches above.
  const rest = Number(element("model").dataset.rest);

  const settings = () => ({
    gen: Number(element("gen").value),
    lanes: LANES[Number(element("lanes").value)],
    mps: SIZES[Number(element("mps").value)],
    mrrs: SIZES[Number(element("mrrs").value)],
  });

  function series(s) {
    const link = [s.gen, s.lanes, s.mps, s.mrrs, rest];
    const of = (name, value, dashed) => ({ name, value, dashed });
    return [
      ...MIXES.map((name, i) => of(name, (b) => model.crosslane_transfer_gbps(...link, i, b))),
      ...NICS.map((name, i) => of("NIC: " + name, (b) => model.crosslane_nic_gbps(...link, i, b))),
      ...PORTS.map((rate) => of(rate + "G Ethernet", (b) => model.crosslane_ethernet_gbps(rate, b), true)),
    ];
  }

  const W = 560, H = 380, L = 64, R = 20, T = 36, B = 56, COLUMNS = 3, ROW = 20;
  function ticks(top) {
    const rough = top / 6, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((t) => t >= rough);
    return Array.from({ length: Math.floor(top / step) + 1 }, (_, i) => i * step);
  }

  function draw(lines, s) {
    const top = 1.15 * lines[1].value(1518);
    const x = (b) => L + ((b - 64) / (1518 - 64)) * (W - R - L);
    const y = (g) => H - B - (g / top) * (H - B - T);
    const text = (px, py, anchor, content) =>
      `<text class="ink" x="${px}" y="${py}" text-anchor="${anchor}" fill="#222">${content}</text>`;
    const height = H + ROW * Math.ceil(lines.length / COLUMNS) + 8;
    const parts = [`<rect class="paper" width="${W}" height="${height}" fill="#fff"/>`, text(12, 18, "start", `gen${s.gen} x${s.lanes}: payload each way`)];
    for (const g of ticks(top)) {
      parts.push(`<line class="grid" x1="${L}" x2="${W - R}" y1="${y(g)}" y2="${y(g)}" stroke="#e3e3e3"/>`);
      parts.push(text(L - 8, y(g) + 4, "end", +g.toFixed(3)));
    }
    for (const b of [64, 256, 512, 768, 1024, 1280, 1518]) parts.push(text(x(b), H - B + 20, "middle", b));
    parts.push(text((L + W - R) / 2, H - 16, "middle", "transfer or frame (B)"),
      `<text class="ink" transform="translate(16 ${(T + H - B) / 2}) rotate(-90)" text-anchor="middle" fill="#222">Gb/s</text>`);
    let references = 0;
    lines.forEach((line, i) => {
      const points = [];
      for (let b = 64; b <= 1518; b += 2) {
        const g = line.value(b);
        if (g <= top) points.push(`${x(b).toFixed(1)},${y(g).toFixed(1)}`);
      }
      const colour = line.dashed
        ? `class="line ref" stroke="#777777" stroke-dasharray="${DASHES[references++ % 4]}"`
        : `class="line c${i % 8}" stroke="${COLOURS[i % 8]}"`;
      const look = `${colour} stroke-width="1.8"`;
      const ly = H + 8 + ROW * Math.floor(i / COLUMNS), lx = 12 + (i % COLUMNS) * ((W - 12) / COLUMNS);
      parts.push(`<polyline fill="none" ${look} points="${points.join(" ")}"/>`);
      parts.push(`<line x1="${lx}" x2="${lx + 18}" y1="${ly}" y2="${ly}" ${look}/>`, text(lx + 24, ly + 5, "start", line.name));
    });
    element("bandwidth").innerHTML =
      `<svg viewBox="0 0 ${W} ${height}" role="img" font-family="system-ui, sans-serif" font-size="14">${parts.join("")}</svg>`;
  }

  function redraw() {
    const s = settings();
    for (const [id, value] of Object.entries(s)) element(id + "-value").textContent = value;
    const tlp = model.crosslane_link_gbps(s.gen, s.lanes, s.mps, s.mrrs, rest, 1);
    // What was drawn for another link would seem to be this one's.
    element("model").classList.toggle("illegal", Number.isNaN(tlp));
    if (Number.isNaN(tlp)) {
      element("readout").textContent = s.mps > s.mrrs
        ? `No such link: MPS ${s.mps} is above MRRS ${s.mrrs}. Legal here: MPS up to ${s.mrrs}, or MRRS from ${s.mps}.`
        : `No such link: the read completion boundary ${rest & 0xffff} is above MPS ${s.mps}. Legal here: MPS from ${rest & 0xffff}.`;
      element("bandwidth").replaceChildren();
      element("rates").replaceChildren();
      return;
    }
    const raw = model.crosslane_link_gbps(s.gen, s.lanes, s.mps, s.mrrs, rest, 0);
    element("readout").textContent = `${raw.toFixed(2)} Gb/s raw, ${tlp.toFixed(2)} Gb/s for TLPs, each way`;
    const lines = series(s);
    draw(lines, s);
    const row = (cells, tag) => `<tr>${cells.map((c) => `<${tag}>${c}</${tag}>`).join("")}</tr>`;
    const sizes = [64, 128, 256, 512, 1024, 1500];
    element("rates").innerHTML = row(["Gb/s", ...sizes.map((b) => b + " B")], "th") +
      lines.map((line) => row([line.name, ...sizes.map((b) => line.value(b).toFixed(2))], "td")).join("");
  }

  for (const id of ["gen", "lanes", "mps", "mrrs"]) element(id).addEventListener("input", redraw);
  redraw();
  document.body.dataset.ready = "yes";
})();
