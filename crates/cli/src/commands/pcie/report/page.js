"use strict";
// Redraws the bandwidth figure. All numbers come from the WebAssembly module, which is the same model
// that the command uses; this file only maps sliders to settings and numbers to lines.
(async () => {
  const LANES = [1, 2, 4, 8, 16, 32];
  const SIZES = [128, 256, 512, 1024, 2048, 4096];
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#444444"];
  const NICS = ["simple", "kernel", "dpdk", "niq", "window"];
  const MIXES = ["write", "read", "read and write"];
  const PORTS = [40, 100, 200, 400];
  const element = (id) => document.getElementById(id);

  const bytes = Uint8Array.from(atob(element("model").dataset.wasm), (c) => c.charCodeAt(0));
  const { instance } = await WebAssembly.instantiate(bytes);
  const model = instance.exports;

  const settings = () => ({
    gen: Number(element("gen").value),
    lanes: LANES[Number(element("lanes").value)],
    mps: SIZES[Number(element("mps").value)],
    mrrs: SIZES[Number(element("mrrs").value)],
  });

  function series(s) {
    const link = [s.gen, s.lanes, s.mps, s.mrrs];
    const of = (name, value, dashed) => ({ name, value, dashed });
    return [
      ...MIXES.map((name, i) => of(name, (b) => model.crosslane_transfer_gbps(...link, i, b))),
      ...NICS.map((name, i) => of("NIC: " + name, (b) => model.crosslane_nic_gbps(...link, i, b))),
      ...PORTS.map((rate) => of(rate + "G Ethernet", (b) => model.crosslane_ethernet_gbps(rate, b), true)),
    ];
  }

  const W = 760, H = 420, L = 64, R = 190, T = 36, B = 52;
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
      `<text x="${px}" y="${py}" text-anchor="${anchor}" fill="#333">${content}</text>`;
    const parts = [text(L, 20, "start", `gen${s.gen} x${s.lanes}: payload each way`)];
    for (const g of ticks(top)) {
      parts.push(`<line x1="${L}" x2="${W - R}" y1="${y(g)}" y2="${y(g)}" stroke="#e3e3e3"/>`);
      parts.push(text(L - 8, y(g) + 4, "end", +g.toFixed(3)));
    }
    for (const b of [64, 256, 512, 768, 1024, 1280, 1518]) parts.push(text(x(b), H - B + 19, "middle", b));
    parts.push(text((L + W - R) / 2, H - 12, "middle", "transfer or frame (B)"), text(12, T - 4, "start", "Gb/s"));
    lines.forEach((line, i) => {
      const points = [];
      for (let b = 64; b <= 1518; b += 2) {
        const g = line.value(b);
        if (g <= top) points.push(`${x(b).toFixed(1)},${y(g).toFixed(1)}`);
      }
      const look = `stroke="${COLOURS[i % 8]}" stroke-width="1.8"${line.dashed ? ' stroke-dasharray="5 4"' : ""}`;
      const ly = T + 10 + 18 * i, lx = W - R + 14;
      parts.push(`<polyline fill="none" ${look} points="${points.join(" ")}"/>`);
      parts.push(`<line x1="${lx}" x2="${lx + 18}" y1="${ly}" y2="${ly}" ${look}/>`, text(lx + 24, ly + 4, "start", line.name));
    });
    element("bandwidth").innerHTML =
      `<svg viewBox="0 0 ${W} ${H}" role="img" font-family="system-ui, sans-serif" font-size="12">${parts.join("")}</svg>`;
  }

  function redraw() {
    const s = settings();
    for (const [id, value] of Object.entries(s)) element(id + "-value").textContent = value;
    const tlp = model.crosslane_link_gbps(s.gen, s.lanes, s.mps, s.mrrs, 1);
    if (Number.isNaN(tlp)) {
      element("readout").textContent = `No such link: MPS ${s.mps} is above MRRS ${s.mrrs}.`;
      return;
    }
    const raw = model.crosslane_link_gbps(s.gen, s.lanes, s.mps, s.mrrs, 0);
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
