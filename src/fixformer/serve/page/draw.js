// Small parts that several places draw. Text only ever enters the page as text.

export function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("aria-") || key === "role" || key === "for") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

export function percent(share) {
  return share >= 0.995 || share < 0.0005 ? `${Math.round(100 * share)} %` : `${(100 * share).toFixed(1)} %`;
}

export function clock(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
}

// The rows are kept and changed, so that their bars move instead of jumping.
export function bars(list, guesses) {
  while (list.children.length > guesses.length) list.lastChild.remove();
  while (list.children.length < guesses.length) {
    const bar = element("span", { class: "bar" }, element("i"));
    bar.setAttribute("aria-hidden", "true");
    list.append(element("li", {}, element("span", { class: "name" }), element("span", { class: "share" }), bar));
  }
  guesses.forEach(({ label, probability }, row) => {
    const [name, share, bar] = list.children[row].children;
    name.textContent = label;
    share.textContent = percent(probability);
    bar.firstChild.style.width = `${100 * probability}%`;
  });
}
