// Where the elements of a document are in the window, and what lies over them. See page.js.
// Where to press the mouse, in CSS pixels of this window: an element's middle, or where it is not covered, and no button or
// link in it is hit that is not meant; if it must be free and is not, what lies over it. Several places if this window is
// framed: something may cover its frame, too.
function point(key, free) {
  const el = find(key);
  if (!el) return null;
  const view = el.ownerDocument.defaultView;
  let spot = place(el, 0.5, 0.5);
  if (!spot.inside || view !== window) { // out of the window, or clipped by a box that scrolls
    el.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
    spot = place(el, 0.5, 0.5);
  }
  const middle = !free || spot.inside || passes(el, spot), spots = middle ? [spot] : [];
  if (free && (!middle || spot.other || window.parent !== window)) {
    for (const each of [el, ...(el.labels ?? [])])
      spots.push(...ELSEWHERE.map(([right, down]) => place(each, right, down)).filter((other) => other.inside));
  }
  if (spots.length) return { spots: spots.sort((a, b) => a.other - b.other).map(({ x, y }) => outer(view, x, y)) };
  return !spot.sized ? { out: "has no size" } : spot.hit?.contains(el) ? { out: "takes no clicks" } : over(spot.hit);
}
// Whether a press that hits only what holds an element is meant for it: not if the mouse goes through a control.
function passes(el, { hit, sized }) {
  if (!sized || !hit?.contains(el)) return false;
  if (getComputedStyle(el).pointerEvents !== "none") return true;
  return !CONTROLS.has(roleOf(el)) && !!hit.closest("[agentq-clicks],[onclick]");
}
const PARTS = [0.5, 0.25, 0.75, 0.1, 0.9], ELSEWHERE = PARTS.flatMap((right) => PARTS.map((down) => [right, down]));
const over = (hit) => (hit ? { over: squeeze(`${hit.localName} ${hit.textContent}`) } : { out: "is outside the page" });
// The box of an element, or of the first part of it that has a size.
const boxOf = (el) => Array.from(el.getClientRects()).find((r) => r.width && r.height);
function partBox(el) {
  for (const each of (el.shadowRoot ?? el).querySelectorAll("*")) if (boxOf(each)) return boxOf(each);
  return null;
}
// A part of the way across an element, what is hit there, whether that is the element, a part of it, or its label, whether
// it is a button or link in an element that is no control by its role, and whether it has a size.
function place(el, right, down) {
  const sized = boxOf(el) ?? partBox(el), box = sized ?? el.getBoundingClientRect();
  const x = box.left + box.width * right, y = box.top + box.height * down, view = el.ownerDocument.defaultView;
  const above = view === window ? null : through(view.frameElement, x, y).over;
  const hit = above ? above.hit : deepest(el.ownerDocument, x, y);
  const inside = !above && !!hit && [el, ...(el.labels ?? [])].some((each) => encloses(each, hit));
  const part = inside && !CONTROLS.has(roleOf(el)) ? hit.closest("a,button") : null;
  return { x, y, hit, sized: !!sized, inside, other: !!part && part !== el && el.contains(part) };
}
// What is hit, in whatever shadow root.
function deepest(root, x, y) {
  const hit = root.elementFromPoint(x, y);
  return hit?.shadowRoot && hit.shadowRoot !== root ? deepest(hit.shadowRoot, x, y) ?? hit : hit;
}
function encloses(el, node) {
  for (let at = node; at; at = at.assignedSlot ?? at.parentNode ?? at.host) if (at === el) return true;
  return false;
}
// A point of a same-origin frame's viewport in this document's.
function outer(view, x, y) {
  for (let w = view; w !== window; w = w.parent) ({ x, y } = inset(w.frameElement, x, y));
  return { x, y };
}
// A point of a frame's content in the document around it, which may have made the frame larger or smaller.
function inset(frame, x, y) {
  const box = frame.getBoundingClientRect(), style = getComputedStyle(frame);
  const scale = (shown, own) => (own && Math.abs(shown - own) > 1 ? shown / own : 1);
  return {
    x: box.left + (frame.clientLeft + parseFloat(style.paddingLeft) + x) * scale(box.width, frame.offsetWidth),
    y: box.top + (frame.clientTop + parseFloat(style.paddingTop) + y) * scale(box.height, frame.offsetHeight),
  };
}
// A point of a frame's content in this window; `over`: what is hit there instead of a frame on the way, if anything is.
function through(frame, x, y) {
  let over = null;
  for (let at = frame; at;) {
    ({ x, y } = inset(at, x, y));
    const hit = deepest(at.getRootNode(), x, y), view = at.ownerDocument.defaultView;
    if (hit !== at) over ??= { hit };
    at = view === window ? null : view.frameElement;
  }
  return { x, y, over };
}
// The same for points of a frame with a world of its own, once the first is in view: those that nothing lies over, or
// what lies over the first. If they need not be free, the first.
function reach(key, spots, free) {
  const frame = find(key), all = () => spots.map(({ x, y }) => through(frame, x, y));
  if (!frame) return null;
  frame.scrollIntoView({ block: "nearest", behavior: "instant" });
  const [{ x, y }] = all(), away = (at, size) => (at < 0 || at >= size ? at - size / 2 : 0);
  scrollBy({ left: away(x, innerWidth), top: away(y, innerHeight), behavior: "instant" });
  const found = all(), open = free ? found.filter(({ over }) => !over) : found.slice(0, 1);
  return open.length ? { spots: open.map(({ x, y }) => ({ x, y })) } : over(found[0].over.hit);
}

// Where elements are in the window: [left, top, width, height] by number, for those in sight; and the window's size.
function boxes(keys) {
  const found = {}, size = [innerWidth, innerHeight];
  for (const [number, key] of Object.entries(keys)) {
    const el = find(key), box = el?.isConnected && el.getBoundingClientRect();
    if (!box || !box.width || !box.height) continue;
    const { x, y } = outer(el.ownerDocument.defaultView, box.left, box.top);
    if (x < size[0] && y < size[1] && x + box.width > 0 && y + box.height > 0)
      found[number] = [x, y, box.width, box.height].map(Math.round);
  }
  return { size, boxes: found };
}

// A picture of the window with a box around each element and its number at the upper left corner, as a WebP in base64.
async function mark(picture, boxes, quality) {
  const bytes = Uint8Array.from(atob(picture), (character) => character.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes])), canvas = new OffscreenCanvas(image.width, image.height);
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  Object.assign(pen, { font: "bold 12px sans-serif", textBaseline: "top", lineWidth: 2 });
  for (const [number, [x, y, width, height]] of Object.entries(boxes)) {
    const [left, top] = [Math.max(0, x), Math.max(0, y)], wide = pen.measureText(number).width + 4;
    pen.strokeStyle = pen.fillStyle = `hsl(${(number * 137) % 360} 90% 32%)`;
    pen.strokeRect(x, y, width, height);
    pen.fillRect(left, top, wide, 14);
    pen.fillStyle = "white";
    pen.fillText(number, left + 2, top + 1);
  }
  const drawn = new Uint8Array(await (await canvas.convertToBlob({ type: "image/webp", quality })).arrayBuffer());
  return btoa(Array.from(drawn, (byte) => String.fromCharCode(byte)).join(""));
}
