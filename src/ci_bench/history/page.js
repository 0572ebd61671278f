"use strict";
/* The trend page's own part: the table, and how the chart of a series is told to Observable Plot. Names in charts only ever become
   text nodes, attributes and options, never markup. */
(() => {
  const MOST_LISTED = 200;
  const LEFT = 60;
  const thin = { stroke: "currentColor", strokeOpacity: 0.12 };
  const scales = { s: [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]], bytes: [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "bytes"]] };
  const figures = (value) => String(Number(value.toPrecision(5)));

  /* The unit in which the largest value reads well. */
  function scale(line) {
    const largest = Math.max(...(line.levels.length ? line.levels.map(([, , level]) => Math.abs(level)) : line.values.map(Math.abs)));
    const known = scales[line.unit] ?? [[1, line.unit]];
    return known.find(([size]) => largest >= size) ?? known[known.length - 1];
  }

  function said(line, unit, size) {
    const last = line.levels[line.levels.length - 1];
    const moves = line.moves.map(([, text]) => text).join(", ") || "none";
    const level = last ? `${figures(last[2] / size)} ${unit}` : "unknown";
    return `${line.title}, ${line.better}. ${line.values.length} runs, level now ${level}; changes: ${moves}.`;
  }

  function marks(line, runs, size, unit, at, axis, said) {
    const dots = line.values.map((value, i) => {
      const [moment, commit, link] = runs[line.runs[i]];
      return { x: at(i), y: value / size, link, title: `${figures(value / size)} ${unit}\n${moment}\n${commit}` };
    });
    const levels = line.levels.map(([first, last, level, half]) => ({ x1: at(first), x2: at(last), y: ciBench.held(axis, level / size), low: ciBench.held(axis, (level - half) / size), high: ciBench.held(axis, (level + half) / size) }));
    const slopes = line.slopes.flatMap(([first, last, level, half, end], z) => [[first, level], [last, end]].map(([place, y]) => ({ z, x: at(place), y: ciBench.held(axis, y / size), low: ciBench.held(axis, (y - half) / size), high: ciBench.held(axis, (y + half) / size) })));
    const moves = line.moves.filter(([, , , until]) => until === undefined).map(([place, text, worse]) => ({ x: at(place), text, worse }));
    const drifts = line.moves.filter(([, , , until]) => until !== undefined).map(([place, text, worse, until]) => ({ x1: at(place - 1), x2: at(until), text, worse }));
    const far = dots.filter((dot) => ciBench.beyond(axis, dot.y));
    return [
      Plot.gridY(thin),
      Plot.rect(levels, { x1: "x1", x2: "x2", y1: "low", y2: "high", fill: "var(--band)", fillOpacity: 0.25, className: "band" }),
      Plot.areaY(slopes, { x: "x", y1: "low", y2: "high", z: "z", fill: "var(--band)", fillOpacity: 0.25, className: "band" }),
      Plot.rect(drifts, { x1: "x1", x2: "x2", fill: (drift) => (drift.worse ? "var(--bad)" : "var(--good)"), fillOpacity: 0.08, title: "text", className: "drift" }),
      Plot.ruleX(line.changes, { x: ([place]) => at(place), stroke: "var(--unsure)", strokeDasharray: "3 3", title: ([, text]) => text, className: "change" }),
      Plot.ruleX(moves, { x: "x", stroke: (move) => (move.worse ? "var(--bad)" : "var(--good)"), strokeWidth: 1.5, title: "text", className: "move" }),
      ...said.map(({ place, text, worse, lane, end }) => Plot.text([text], { x: () => at(place), text: (word) => word, frameAnchor: "top", textAnchor: end ? "end" : "start", dy: -9 - LANE * lane, fill: worse ? "var(--bad)" : "var(--good)", className: "said" })),
      ...(far.length ? [Plot.dot(far, { x: "x", y: (dot) => ciBench.held(axis, dot.y), r: 5, symbol: "triangle", stroke: "var(--bad)", fill: "var(--ground)", strokeWidth: 1.8, title: (dot) => `${dot.title}\nbeyond the axis`, className: "beyond" })] : []),
      Plot.dot(dots.filter((dot) => !far.includes(dot)), { x: "x", y: "y", r: 2, fill: "var(--c0)", title: "title", tip: true, className: "runs" }),
      Plot.link(levels, { x1: "x1", x2: "x2", y1: "y", y2: "y", stroke: "var(--c1)", strokeWidth: 2, className: "level" }),
      Plot.line(slopes, { x: "x", y: "y", z: "z", stroke: "var(--c1)", strokeWidth: 2, className: "slope" }),
    ];
  }

  /* The words of changes above the frame, in lanes, so that none covers another. A change without room says its word in its title. */
  const [LANE, LANES, LETTER] = [14, 4, 7.2];
  function laid(line, at, width) {
    const [first, last] = [Number(at(0)), Number(at(line.runs.length - 1))];
    const ends = [];
    return line.moves.map(([place, text, worse]) => {
      const x = LEFT + ((Number(at(place)) - first) / (last - first || 1)) * (width - LEFT - 20);
      const room = LETTER * text.length;
      const end = x + room > width;
      const [start, stop] = end ? [x - room, x] : [x, x + room];
      const free = ends.findIndex((taken) => taken.every(([a, b]) => stop + 6 < a || start > b + 6));
      const lane = free < 0 ? ends.push([]) - 1 : free;
      ends[lane].push([start, stop]);
      return { place, text, worse, lane, end };
    }).filter(({ lane }) => lane < LANES);
  }

  /* The runs of a series as links, newest first, made when they are asked for. */
  function listing(details, data) {
    const line = data.lines[Number(details.dataset.line)];
    const [size, unit] = scale(line);
    details.addEventListener("toggle", () => {
      const list = details.querySelector("ol");
      if (list.children.length) return;
      const newest = line.runs.map((run, i) => [run, line.values[i]]).slice(-MOST_LISTED).reverse();
      list.replaceChildren(...newest.map(([run, value]) => {
        const [moment, commit, link] = data.runs[run];
        const item = document.createElement("li");
        const named = document.createElement(link ? "a" : "span");
        named.textContent = `${moment.slice(0, 16)} ${commit}`;
        if (link) named.setAttribute("href", link);
        item.append(named, ` ${figures(value / size)} ${unit}`);
        return item;
      }));
    });
  }

  /* A click leads to the run that the pointer is at; by keyboard it is found in the list below. */
  function leading(holder) {
    holder.addEventListener("click", () => {
      const link = holder.firstElementChild?.value?.link;
      if (link) location.assign(link);
    });
  }

  function draw(holder, data, axis) {
    const line = data.lines[Number(holder.dataset.line)];
    const [size, unit] = scale(line);
    const byTime = axis.value === "at";
    const at = byTime ? (i) => new Date(data.runs[line.runs[i]][0]) : (i) => line.runs[i];
    const commit = (index) => data.runs[index]?.[1] ?? "";
    const x = (width) => (byTime ? { type: "utc", label: "time of the run", ticks: Math.min(6, width / 110) } : { label: "runs, with their commits", ticks: Math.min(6, width / 110), tickFormat: (index) => (Number.isInteger(index) ? commit(index).slice(0, 7) : "") });
    const stretches = [...line.levels, ...line.slopes].map(([first, last]) => line.values.slice(first, last + 1).map((value) => value / size));
    const usual = ciBench.usual(stretches, 0.02);
    const options = (width) => {
      const said = laid(line, at, width);
      const marginTop = 24 + LANE * said.reduce((most, { lane }) => Math.max(most, lane + 1), 0);
      return { height: 220 + marginTop, marginLeft: LEFT, marginTop, x: x(width), y: { label: unit, nice: !usual, zero: false, ...(usual && { domain: usual }) }, marks: marks(line, data.runs, size, unit, at, usual, said) };
    };
    leading(holder);
    ciBench.chart(holder, { label: said(line, unit, size), options });
  }

  function table() {
    const element = document.getElementById("series");
    if (!element) return;
    const onChange = (shown) => {
      const wanted = new Set(shown.map((row) => row.dataset.line));
      for (const section of document.querySelectorAll("#lines > section")) section.hidden = !wanted.has(section.id);
    };
    const filters = [...document.querySelectorAll("select.filter")];
    ciBench.table(element, { search: document.getElementById("search"), filters, count: document.getElementById("count"), what: "series", onChange });
  }

  async function start() {
    const data = await ciBench.data;
    const axis = document.getElementById("axis");
    const every = () => {
      for (const old of document.querySelectorAll("div.trend")) {
        const holder = old.cloneNode(false);
        delete holder.dataset.drawn;
        old.replaceWith(holder);
        draw(holder, data, axis);
      }
      document.documentElement.dataset.ready = "yes";
    };
    axis.addEventListener("change", every);
    for (const details of document.querySelectorAll("details.listing")) listing(details, data);
    table();
    every();
  }

  start();
})();
