// Tables of the leaderboard are sorted by a click on the head of a column: numbers by size, the greatest first; words by alphabet.
document.addEventListener("DOMContentLoaded", () => {
  if (!document.querySelector("#leaderboard")) return;
  const sizeOf = (text) => parseFloat(text.replace(/,/g, "").replace("+", ""));
  for (const table of document.querySelectorAll("#leaderboard table")) {
    table.querySelectorAll("thead th").forEach((head, column) => {
      head.style.cursor = "pointer";
      head.title = "sort by this column";
      let sign = 1;
      head.addEventListener("click", () => {
        const body = table.tBodies[0];
        const told = (row) => row.cells[column].textContent.trim();
        const compare = (a, b) => {
          const [left, right] = [sizeOf(told(a)), sizeOf(told(b))];
          if (Number.isNaN(left) && Number.isNaN(right)) return told(a).localeCompare(told(b));
          // what has no number stands last, whichever way
          if (Number.isNaN(left)) return sign;
          if (Number.isNaN(right)) return -sign;
          return right - left;
        };
        body.append(...[...body.rows].sort((a, b) => sign * compare(a, b)));
        sign = -sign;
      });
    });
  }
});
