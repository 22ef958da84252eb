// Draws the figures of a page in the reader's colour scheme and wires their controls.
(() => {
  "use strict";
  Bokeh.set_log_level("warn");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const narrow = () => innerWidth < 600;

  function paint(plot) {
    const ink = colour("--muted"), line = colour("--rule"), font = getComputedStyle(document.body).fontFamily;
    for (const panel of [...plot.below, ...plot.left]) {
      panel.setv({
        axis_label_text_color: ink, major_label_text_color: ink, axis_line_color: line,
        major_tick_line_color: line, minor_tick_line_color: null,
        axis_label_text_font: font, major_label_text_font: font,
        axis_label_text_font_style: "normal", axis_label_text_font_size: "13px", major_label_text_font_size: "12px",
      });
    }
    for (const grid of plot.center) grid.setv({ grid_line_color: line, grid_line_alpha: 0.6 });
    for (const renderer of plot.renderers) {
      const stroke = colour(`--series-${renderer.tags[1]}`);
      for (const glyph of [renderer.glyph, renderer.muted_glyph, renderer.nonselection_glyph]) glyph.line_color = stroke;
    }
  }

  function choose(plot, axis, logarithmic) {
    const low = logarithmic ? axis.positive : axis.low;
    const pad = logarithmic ? 0 : 0.01 * (axis.high - axis.low);
    for (const renderer of plot.renderers) {
      for (const glyph of [renderer.glyph, renderer.muted_glyph, renderer.nonselection_glyph]) {
        glyph.x = { field: axis.name };
      }
    }
    const Scale = Bokeh.Models.get(logarithmic ? "LogScale" : "LinearScale");
    const shown = plot.below.filter((panel) => panel.type.endsWith("Axis"));
    for (const panel of shown) {
      panel.axis_label = axis.label;
      panel.visible = (panel.type === "LogAxis") === logarithmic;
    }
    plot.x_range.setv({ start: low - pad, end: axis.high + pad, reset_start: low - pad, reset_end: axis.high + pad });
    if (plot.x_scale.type !== (logarithmic ? "LogScale" : "LinearScale")) plot.x_scale = new Scale();
    const vertical = plot.center.find((grid) => grid.dimension === 0);
    if (vertical) vertical.axis = shown.find((panel) => panel.visible);
  }

  // Built from text nodes: names of series come from anywhere.
  function explain(plot, axes) {
    const hover = plot.toolbar.tools.find((tool) => tool.type === "HoverTool");
    const digits = (value, most) => value.toLocaleString("en", { maximumFractionDigits: most });
    hover.tooltips = (source, { name, index }) => {
      const box = document.createElement("div");
      const line = (text, bold) => {
        const row = box.appendChild(document.createElement("div"));
        row.textContent = text;
        row.style.fontWeight = bold ? "600" : "400";
      };
      line(name, true);
      line(`${plot.left[0].axis_label}: ${digits(source.get_column("raw")[index], 4)}`);
      line(`smoothed: ${digits(source.get_column("smooth")[index], 4)}`);
      for (const axis of axes) {
        const value = source.get_column(axis.name)[index];
        if (Number.isFinite(value)) line(`${axis.label}: ${digits(value, 3)}`);
      }
      return box;
    };
  }

  function wire(figure, plot, axes) {
    const controls = figure.querySelector("form");
    const update = () => {
      const name = controls.elements.axis ? new FormData(controls).get("axis") : axes[0].name;
      const axis = axes.find((one) => one.name === name) ?? axes[0];
      choose(plot, axis, controls.elements.log.checked);
      figure.dataset.axis = axis.name;
    };
    controls.addEventListener("change", update);
    controls.addEventListener("submit", (event) => event.preventDefault());
    for (const button of figure.querySelectorAll("button[data-group]")) {
      button.addEventListener("click", () => {
        const muted = button.getAttribute("aria-pressed") === "true";
        button.setAttribute("aria-pressed", String(!muted));
        for (const renderer of plot.renderers) {
          if (renderer.tags[0] === button.dataset.group) renderer.muted = muted;
        }
      });
    }
    update();
  }

  async function show(figure) {
    const data = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    figure.hidden = false;
    const views = await Bokeh.embed.embed_item(data.item);
    const plot = (views.roots ? [...views.roots][0] : views[0]).model;
    if (coarse) plot.toolbar.setv({ active_drag: null, autohide: true });
    if (narrow()) plot.height = 320;
    paint(plot);
    explain(plot, data.axes);
    wire(figure, plot, data.axes);
    dark.addEventListener("change", () => paint(plot));
    const numbers = document.getElementById(figure.dataset.numbers);
    if (numbers) numbers.open = false;
    figure.dataset.ready = "true";
  }

  for (const figure of document.querySelectorAll("figure.curves")) show(figure);
})();
