"use strict";
// What all parts use: elements from text (never from markup), numbers as text, and the blocks of data.

const $ = (id) => document.getElementById(id);

/** An element. Children are elements or text; text from a run can become nothing else. */
function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child || child === 0));
  return element;
}

/** A number with two decimals, as Python writes it: a tie, such as 1/8, goes to the even digit. */
function figure(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value), low = Math.floor(100 * size), tie = Number.isInteger(8 * size) && !Number.isInteger(4 * size);
  const text = (tie && low % 2 === 0 ? low / 100 : size).toFixed(2);
  return value < 0 && /[1-9]/.test(text) ? `-${text}` : text;
}

const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** The bytes of a block of this file, or of the server that this page came from. */
async function block(name) {
  const held = $(name);
  if (held) return bytesOf(held.textContent);
  if ($("index")) throw new Error(`${name} is not in this file`);
  const answer = await fetch(`data/${name}`).catch(() => { throw new Error("the server has stopped"); });
  if (answer.status === 500) throw new Error(await answer.text());
  if (!answer.ok) throw new Error("the server has stopped"); // another one has its port
  return new Uint8Array(await answer.arrayBuffer());
}

/** The JSON of a compressed block. */
async function read(name) {
  const stream = new Blob([await block(name)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}
