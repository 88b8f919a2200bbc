(() => {
  "use strict";
  const root = document.documentElement;
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = [];
  let round = 0;

  function config() {
    const style = getComputedStyle(root);
    const ink = style.getPropertyValue("--ink").trim(), soft = style.getPropertyValue("--soft").trim();
    const line = style.getPropertyValue("--line").trim();
    const font = "system-ui, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif";
    return {
      background: "transparent", font,
      axis: { labelColor: soft, titleColor: ink, gridColor: line, domainColor: line, tickColor: line, titleFontWeight: 500 },
      legend: { labelColor: ink, titleColor: soft, titleFontWeight: 500 },
      header: { labelColor: ink, titleColor: ink }, title: { color: ink }, view: { stroke: line },
    };
  }

  // Panels flow into as many columns as the page is wide, so that a phone gets one below the other.
  function fitted(spec, width) {
    if (!("columns" in spec) || !spec.spec || (typeof spec.spec.width === "object" && width > 1000)) return spec;
    const ownAxes = spec.resolve && spec.resolve.scale && spec.resolve.scale.y === "independent";
    const panel = (typeof spec.spec.width === "number" ? spec.spec.width : 270) + (ownAxes ? 75 : 22), first = ownAxes ? -20 : 45;
    return { ...spec, columns: Math.max(1, Math.min(spec.columns, Math.floor((width - first) / panel))) };
  }

  async function draw() {
    const mine = ++round;
    while (drawn.length) drawn.pop().finalize();
    for (const element of document.querySelectorAll(".chart")) {
      if (mine !== round) return;
      const spec = fitted(specs[element.dataset.spec], element.clientWidth);
      try {
        const result = await vegaEmbed(element, spec, {
          mode: "vega-lite", renderer: "svg", config: config(),
          actions: { export: true, source: false, compiled: false, editor: false },
        });
        drawn.push(result);
        const svg = element.querySelector("svg");
        if (svg) svg.setAttribute("aria-label", element.getAttribute("aria-label"));
        element.dataset.state = "drawn";
      } catch (error) {
        element.dataset.state = "failed";
        element.textContent = "This chart could not be drawn: " + error.message;
        console.error(error);
      }
      await new Promise((next) => setTimeout(next, 0));
    }
    root.dataset.charts = "done";
  }

  function theme(name) { root.dataset.theme = name; draw(); }
  document.getElementById("theme").addEventListener("click", () => theme(root.dataset.theme === "dark" ? "light" : "dark"));
  media.addEventListener("change", (event) => theme(event.matches ? "dark" : "light"));
  let width = window.innerWidth, timer;
  window.addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { if (Math.abs(window.innerWidth - width) > 60) { width = window.innerWidth; draw(); } }, 250);
  });
  theme(media.matches ? "dark" : "light");
})();
