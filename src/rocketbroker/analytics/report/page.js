"use strict";
// Draws FIGURES in the colours of the theme, and again when the theme changes.
const dark = matchMedia("(prefers-color-scheme: dark)");
let chosen = null;

function theme() {
  return chosen || (dark.matches ? "dark" : "light");
}

function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function traces(figure) {
  const colours = COLOURS[theme()];
  const card = ink("--card");
  return figure.series.map((series) => {
    const colour = colours[series.colour];
    const shared = { name: series.name, x: series.x, y: series.y };
    if (figure.kind === "areas") {
      return {
        ...shared, type: "scatter", mode: "lines", stackgroup: "all", fillcolor: colour,
        line: { width: 0.6, color: card }, hovertemplate: "%{y:,.4~r}<extra>%{fullData.name}</extra>",
      };
    }
    const flat = figure.kind === "levels";
    return {
      ...shared, type: "bar", orientation: flat ? "h" : "v", marker: { color: colour, line: { width: 1, color: card } },
      hovertemplate: `%{${flat ? "y" : "x"}}: %{${flat ? "x" : "y"}:,.4~r}<extra>%{fullData.name}</extra>`,
    };
  });
}

function layout(figure, narrow) {
  const soft = ink("--soft");
  const line = ink("--line");
  const flat = figure.kind === "levels";
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickcolor: line, automargin: true };
  const values = { ...axis, title: { text: figure.yTitle, standoff: 8 }, rangemode: "tozero", tickformat: figure.small ? ",.2~f" : "~s", nticks: 6 };
  const places = { ...axis, title: { text: figure.xTitle, standoff: 8 }, showgrid: false };
  if (figure.kind === "areas") places.type = "date";
  else places.type = "category";
  if (flat) places.autorange = "reversed";
  return {
    barmode: "stack", bargap: flat ? 0.28 : 0.12, hovermode: figure.kind === "areas" ? "x unified" : "closest",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", colorway: COLOURS[theme()],
    font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 11 : 12, color: soft },
    hoverlabel: { bgcolor: ink("--card"), bordercolor: line, font: { color: ink("--ink") } },
    margin: { l: 8, r: 8, t: 8, b: 8 }, minreducedheight: 24, showlegend: false,
    xaxis: flat ? values : places, yaxis: flat ? places : values,
  };
}

function draw() {
  document.documentElement.dataset.theme = theme();
  for (const [name, figure] of Object.entries(FIGURES)) {
    const place = document.getElementById("figure-" + name);
    const options = { responsive: true, displaylogo: false, displayModeBar: false };
    Plotly.react(place, traces(figure), layout(figure, place.clientWidth < 500), options);
  }
}

document.getElementById("theme").addEventListener("click", () => {
  chosen = theme() === "dark" ? "light" : "dark";
  draw();
});
dark.addEventListener("change", draw);
draw();
