/* Pictures as files: each holds its style, so it is the same in a slide. */
const MOST_PIXELS = 16000;
function standalone(picture) {
  const style = getComputedStyle(document.documentElement);
  const rules = document.getElementById("pictures").textContent.replace(/var\((--[a-z]+)\)/g, (_, name) => style.getPropertyValue(name));
  picture.setAttribute("xmlns", SVG);
  picture.removeAttribute("style");
  picture.prepend(svg("style", {}, rules), svg("rect", { width: "100%", height: "100%", fill: style.getPropertyValue("--paper") }));
  return new XMLSerializer().serializeToString(picture);
}
function save(blob, name) {
  const link = html("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}
const asBlob = (picture) => new Blob([standalone(picture)], { type: "image/svg+xml" });
function savePng(picture, name) {
  const image = new Image(), url = URL.createObjectURL(asBlob(picture));
  image.onload = () => {
    /* Twice as sharp, unless that is more than a canvas can hold. */
    const scale = Math.min(2, MOST_PIXELS / Math.max(image.width, image.height));
    const canvas = html("canvas", { width: Math.floor(scale * image.width), height: Math.floor(scale * image.height) });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(blob, `${name}.png`));
    URL.revokeObjectURL(url);
  };
  image.src = url;
}
/* The buttons above a picture; `picture` makes a copy of it. */
function files(name, picture) {
  const button = (kind, act) => html("button", { class: "small", onclick: act, "aria-label": `Save ${name} as ${kind}` }, kind);
  return [button("SVG", () => save(asBlob(picture()), `${name}.svg`)), button("PNG", () => savePng(picture(), name))];
}
function pictured(name, picture) {
  return html("figure", {}, html("div", { class: "tools" }, files(name, () => picture.cloneNode(true))), html("div", { class: "picture" }, picture));
}
