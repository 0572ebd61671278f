"use strict";
/* What every page shares: its data, charts that draw when they come into view, tables to search and sort, copying, the theme.
   No chart is drawn by hand: a page says what to draw to Observable Plot. */
const ciBench = (() => {
  const root = document.documentElement;

  async function unpack() {
    const bytes = Uint8Array.from(atob(document.getElementById("data").textContent), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  /* Draws into `holder` once it is in view, again when its width changes. `options(width)` is what Plot.plot takes;
     `label` is what a screen reader says, and should hold the figures that the eye would take from the chart. */
  function chart(holder, { label, options }) {
    let drawn = 0;
    const draw = () => {
      const width = Math.round(holder.clientWidth) || 480;
      if (Math.abs(width - drawn) < 2) return;
      drawn = width;
      const made = Plot.plot({ width, marginBottom: 42, style: { fontSize: "12px", background: "none" }, ...options(width) });
      const svg = made.tagName === "svg" ? made : made.querySelector("svg");
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", label);
      for (const part of svg.children) part.setAttribute("aria-hidden", "true");
      holder.replaceChildren(made);
      holder.dataset.drawn = "yes";
    };
    const seen = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      seen.disconnect();
      draw();
      new ResizeObserver(draw).observe(holder);
    }, { rootMargin: "300px" });
    seen.observe(holder);
  }

  /* The axis that shows what is usual: from the least to the greatest value within `REACH` spreads (half of the values, at least
     `least` of their size) of the quartiles of its own group. What is beyond it squashes nothing. `null` where all of it fits. */
  const REACH = 6;
  function usual(groups, least = 0.05) {
    let [low, high, first, last] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const group of groups) {
      const sorted = Float64Array.from(group).sort();
      if (!sorted.length) continue;
      const [a, b] = [d3.quantileSorted(sorted, 0.25), d3.quantileSorted(sorted, 0.75)];
      const reach = REACH * Math.max(b - a, (least * Math.max(Math.abs(a), Math.abs(b))) / REACH);
      for (const value of sorted) {
        if (value < a - reach || value > b + reach) continue;
        [low, high] = [Math.min(low, value), Math.max(high, value)];
      }
      [first, last] = [Math.min(first, sorted[0]), Math.max(last, sorted[sorted.length - 1])];
    }
    const room = high - low || Math.abs(high) * least;
    return last - first > 2 * room && room > 0 ? [low - 0.04 * room, high + 0.04 * room] : null;
  }

  /* A value as the axis can show it, and whether it is beyond. */
  const held = (axis, value) => (axis ? Math.min(axis[1], Math.max(axis[0], value)) : value);
  const beyond = (axis, value) => axis !== null && held(axis, value) !== value;

  /* Search, filters and sorting of one table.
     `search` is an input, `filters` are selects whose data-column names the column that they look at, `count` is a live region.
     Cells may carry data-sort, a number or a text to sort by. `onChange(rows)` is told which rows are shown. */
  function table(element, { search, filters = [], count, what = "rows", onChange }) {
    const body = element.tBodies[0];
    const rows = [...body.rows];
    const key = (row, column) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

    function show() {
      const wanted = search ? search.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
      for (const row of rows) {
        const named = wanted.every((word) => texts.get(row).includes(word));
        const chosen = filters.every((one) => !one.value || row.cells[one.dataset.column].dataset.filter === one.value);
        row.hidden = !(named && chosen);
      }
      const shown = rows.filter((row) => !row.hidden);
      if (count) count.textContent = `${shown.length} of ${rows.length} ${what} shown`;
      if (onChange) onChange(shown);
    }

    function sort(head, column) {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of element.tHead.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const order = (a, b) => {
        const [x, y] = [key(a, column), key(b, column)];
        const unknown = (value) => value === "" || value === "–";
        if (unknown(x) || unknown(y)) return unknown(x) - unknown(y);
        const [m, n] = [Number(x), Number(y)];
        const less = Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y, "en", { numeric: true }) : m - n;
        return down ? -less : less;
      };
      body.append(...rows.sort(order));
    }

    [...element.tHead.rows[0].cells].forEach((head, column) => {
      const button = head.querySelector("button");
      if (button) button.addEventListener("click", () => sort(head, column));
    });
    if (search) search.addEventListener("input", show);
    for (const one of filters) one.addEventListener("change", show);
    show();
  }

  function copying() {
    document.addEventListener("click", async (event) => {
      const button = event.target.closest("button.copy");
      if (!button) return;
      const source = document.getElementById(button.dataset.copies);
      let done = "Copied";
      try {
        await navigator.clipboard.writeText(source.textContent);
      } catch {
        const range = document.createRange();
        range.selectNodeContents(source);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        done = document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C";
      }
      button.textContent = done;
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  function theming() {
    const button = document.getElementById("theme");
    const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const tell = () => {
      button.textContent = dark() ? "Light theme" : "Dark theme";
      button.setAttribute("aria-pressed", String(root.dataset.theme !== undefined));
    };
    button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; tell(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
    tell();
  }

  copying();
  theming();
  return { data: unpack(), chart, table, usual, held, beyond };
})();
