/* Draws every figure of a page with Plotly: the data and layout come from the server as JSON beside it.

   <figure data-chart="NAME"> holds <div class="plot" id="NAME-plot"> and <script type="application/json" id="NAME-figure">.
   A colour may be a custom property of the style sheet, "var(--tp)": it is read at drawing time, so a figure follows
   light and dark. A figure that htmx swaps in is drawn anew; a plot kept by hx-preserve changes in place.
   One with data-file="NAME" can be kept as a picture of that name. */
(() => {
  "use strict";

  const NARROW = 600; // px: below it a figure gets less height and no room for long labels

  const drawAll = (root) => {
    if (!window.Plotly) return; // the table under the figure says the same
    for (const figure of root.querySelectorAll("figure[data-chart]")) draw(figure);
  };

  const draw = (figure) => {
    const name = figure.dataset.chart;
    const plot = document.getElementById(`${name}-plot`);
    const source = document.getElementById(`${name}-figure`);
    if (!plot || !source) return;
    const { data, layout } = withColours(JSON.parse(source.textContent), getComputedStyle(document.documentElement));
    figure.classList.add("drawn"); // first, so that the plot has a width to fill
    const narrow = figure.clientWidth < NARROW;
    Plotly.react(plot, data, { ...layout, height: narrow ? (layout.meta?.narrowHeight ?? 280) : layout.height }, {
      displayModeBar: false,
      responsive: true,
    });
    if (figure.dataset.file) offer(figure, plot);
  };

  // Buttons under a figure that save what it shows, in the colours that it has at that moment.
  const offer = (figure, plot) => {
    if (figure.querySelector(".save")) return;
    const line = document.createElement("span");
    line.className = "save no-print";
    line.append("save as ");
    for (const format of ["png", "svg"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "plain";
      button.textContent = format.toUpperCase();
      button.addEventListener("click", () => {
        Plotly.downloadImage(plot, { format, filename: figure.dataset.file, scale: format === "png" ? 2 : 1, width: plot.clientWidth, height: plot.clientHeight });
      });
      line.append(button);
    }
    figure.querySelector("figcaption").append(line);
  };

  const withColours = (value, style) => {
    if (typeof value === "string") {
      const name = /^var\((--[\w-]+)\)$/.exec(value)?.[1];
      return name ? style.getPropertyValue(name).trim() : value;
    }
    if (Array.isArray(value)) return value.map((item) => withColours(item, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withColours(item, style)]));
    }
    return value;
  };

  const redraw = () => drawAll(document);

  redraw();
  document.getElementById("plotly-script")?.addEventListener("load", redraw);
  document.addEventListener("htmx:afterSettle", redraw);
  document.addEventListener("htmx:beforeCleanupElement", (event) => {
    if (window.Plotly && event.target.classList?.contains("js-plotly-plot")) Plotly.purge(event.target);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
})();
