// A click on a heading of a sortable table sorts its rows; a second click reverses them. The choice
// outlives a reload of the page.
"use strict";
const number = (text) => (/^[-\d]/.test(text) ? parseFloat(text.replace(/,/g, "")) : NaN);
const compare = (a, b) => {
  const [x, y] = [number(a), number(b)];
  if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y) || a.localeCompare(b);
  return x - y || a.localeCompare(b);
};
const sort = (table, column, down) => {
  const body = table.tBodies[0];
  const text = (row) => row.cells[column].textContent.trim();
  const rows = [...body.rows].sort((a, b) => (down ? -1 : 1) * compare(text(a), text(b)));
  body.append(...rows);
  [...table.tHead.rows[0].cells].forEach((cell, n) => {
    cell.setAttribute("aria-sort", n !== column ? "none" : down ? "descending" : "ascending");
  });
};
const recall = (key) => { try { return JSON.parse(sessionStorage.getItem(key)); } catch { return null; } };
const keep = (key, value) => { try { sessionStorage.setItem(key, JSON.stringify(value)); } catch { /* private mode */ } };
for (const table of document.querySelectorAll("table.sortable")) {
  const key = `sort ${table.caption?.textContent ?? ""}`;
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = document.createElement("button");
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const down = cell.getAttribute("aria-sort") === "ascending";
      sort(table, column, down);
      keep(key, [column, down]);
    });
  });
  const before = recall(key);
  if (before) sort(table, ...before);
}
