// What is wrong with the page as it is shown now: a list of texts. Evaluated by run.py.
(() => {
  const problems = [];
  const isPaper = matchMedia("print").matches;
  const box = (element) => element.getBoundingClientRect();
  const isShown = (element) => element.checkVisibility() && box(element).width > 0;
  const named = (element) => {
    const text = element.textContent.trim().replace(/\s+/g, " ").slice(0, 60);
    const of = element.closest("section[id]");
    return `<${element.localName} class="${element.getAttribute("class") || ""}"> ${text} (in ${of ? of.id : "page"})`;
  };
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    problems.push(`the page is ${root.scrollWidth} wide on a screen of ${root.clientWidth}`);
    for (const element of all("body *")) {
      if (box(element).right > root.clientWidth + 1 && !element.closest(".scroll") && isShown(element)) {
        problems.push(`  reaches to ${Math.round(box(element).right)}: ${named(element)}`);
      }
    }
  }

  for (const figure of all(".figure")) {
    if (box(figure).width < 50 || box(figure).height < 50) problems.push(`has no size: ${named(figure)}`);
  }
  for (const chart of all(".chart")) {
    const drawings = all("svg.drawing", chart);
    const shown = drawings.filter(isShown);
    if (drawings.length && shown.length !== 1) problems.push(`${shown.length} drawings are shown: ${named(chart)}`);
    if (!drawings.length && !chart.querySelector(".nothing")) problems.push(`neither drawn nor told: ${named(chart)}`);
    if (isPaper) {
      for (const table of all("details table", chart)) {
        if (!isShown(table)) problems.push(`a table is not printed: ${named(table)}`);
      }
    }
  }

  // Text in drawings: whole, legible, and each by itself.
  const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1.5;
  for (const drawing of all("svg.drawing").filter(isShown)) {
    const around = box(drawing);
    const texts = all("text", drawing).filter((text) => text.textContent.trim());
    texts.forEach((text, n) => {
      const own = box(text);
      if (own.left < around.left - 0.5 || own.right > around.right + 0.5
        || own.top < around.top - 1.5 || own.bottom > around.bottom + 1.5) {
        problems.push(`is cut: ${named(text)}`);
      }
      const size = parseFloat(getComputedStyle(text).fontSize) * around.width / drawing.viewBox.baseVal.width;
      if (size < 10.5) problems.push(`is ${size.toFixed(1)} px high: ${named(text)}`);
      for (const other of texts.slice(0, n)) {
        if (overlap(own, box(other))) problems.push(`overlap: ${named(text)} and ${named(other)}`);
      }
    });
  }

  for (const element of all("body *").filter((element) => !(element instanceof SVGElement))) {
    if (!isShown(element) || element.matches(".unseen")) continue;
    const hides = ["hidden", "clip"].includes(getComputedStyle(element).overflowX);
    if (hides && element.scrollWidth > element.clientWidth + 1) problems.push(`is cut: ${named(element)}`);
  }

  // Contrast of text with what is behind it.
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const channels = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const poor = new Set();
  const judge = (element, colour, least) => {
    const ratio = contrast(channels(colour), behind(element));
    if (ratio < least) poor.add(`contrast ${ratio.toFixed(2)} below ${least}: <${element.localName} class="${element.getAttribute("class") || ""}">`);
  };
  for (const element of all("body *").filter(isShown)) {
    const style = getComputedStyle(element);
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (element.matches("svg text")) judge(element, style.fill, 4.5);
    else if (hasText && !(element instanceof SVGElement)) judge(element, style.color, 4.5);
    if (element.matches("svg .line, svg .marker, svg .fill")) judge(element, element.matches(".line") ? style.stroke : style.fill, 3);
  }
  problems.push(...poor);

  // What keyboards and screen readers need.
  let last = 0;
  for (const heading of all("h1, h2, h3, h4, h5, h6")) {
    const level = Number(heading.localName[1]);
    if (level > last + 1) problems.push(`a level is left out before: ${named(heading)}`);
    last = level;
  }
  if (all("h1").length !== 1) problems.push("there is not one h1");
  const ids = all("[id]").map((element) => element.id);
  for (const id of new Set(ids.filter((id, n) => ids.indexOf(id) !== n))) problems.push(`two elements are called ${id}`);
  for (const link of all("a[href^='#']")) {
    if (!ids.includes(decodeURIComponent(link.hash.slice(1)))) problems.push(`leads nowhere: ${named(link)}`);
  }
  for (const name of ["aria-labelledby", "aria-describedby"]) {
    for (const element of all(`[${name}]`)) {
      for (const id of element.getAttribute(name).split(" ")) {
        if (!ids.includes(id)) problems.push(`${name}="${id}" is of nothing: ${named(element)}`);
      }
    }
  }
  for (const drawing of all("svg.drawing")) {
    if (drawing.getAttribute("role") !== "img" || !drawing.querySelector("title") || !drawing.querySelector("desc")) {
      problems.push(`has no role, title or description: ${named(drawing)}`);
    }
  }
  for (const table of all("table")) {
    if (!table.caption || !table.querySelector("th[scope=col]")) problems.push(`has no caption or heads: ${named(table)}`);
  }
  for (const frame of all(".scroll").filter(isShown)) {
    if (frame.scrollWidth > frame.clientWidth && frame.tabIndex < 0) problems.push(`scrolls without focus: ${named(frame)}`);
  }
  if (all("script").length) problems.push("there is a script");
  return problems;
})()
