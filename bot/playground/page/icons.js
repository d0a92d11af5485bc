/* The few glyphs of the page, as outlines on a grid of 20. */
import { svg } from "./dom.js";

const PATHS = {
  hash: "M8 3 6.5 17M13.5 3 12 17M3.5 7.5h13M3 12.5h13",
  at: "M13 10a3 3 0 1 1-6 0 3 3 0 0 1 6 0Zm0 0v1.5a2 2 0 0 0 4 0V10a7 7 0 1 0-2.8 5.6",
  reply: "M4 4.5h12a1 1 0 0 1 1 1v7.5a1 1 0 0 1-1 1H9.5L6 17v-3H4a1 1 0 0 1-1-1V5.5a1 1 0 0 1 1-1ZM6.5 8h7M6.5 11h4.5",
  edit: "m4 16 .8-3.4L13.2 4.2a1.4 1.4 0 0 1 2 0l.6.6a1.4 1.4 0 0 1 0 2L7.4 15.2 4 16Z",
  trash: "M4 5.5h12M8 5.5V4h4v1.5M5.5 5.5l.8 10.5h7.4l.8-10.5M8.5 8.5v5M11.5 8.5v5",
  close: "m5 5 10 10M15 5 5 15",
  back: "m11.5 4.5-5.5 5.5 5.5 5.5",
  menu: "M3.5 5.5h13M3.5 10h13M3.5 14.5h13",
  send: "m3.5 16.5 13-6.5-13-6.5 2 6.5-2 6.5ZM5.5 10h5.5",
  ledger: "M5 3h10a1 1 0 0 1 1 1v12a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V4a1 1 0 0 1 1-1ZM7 7h6M7 10h6M7 13h3.5",
  eye: "M2.5 10S5.5 5 10 5s7.5 5 7.5 5-3 5-7.5 5-7.5-5-7.5-5Zm9.7 0a2.2 2.2 0 1 1-4.4 0 2.2 2.2 0 0 1 4.4 0Z",
  file: "M5.5 3h6l3.5 3.5V17h-9.5V3Zm6 0v3.5H15",
  down: "M10 4v11.5M5 10.5l5 5 5-5",
  stop: "M6 6h8v8H6z",
  copy: "M7 7V4h9v9h-3M4 7h9v9H4V7Z",
  image: "M3.5 4.5h13v11h-13v-11Zm0 8.5 3.5-3.5 3 3 2.5-2 4 3.5M12.5 8h.01",
  bot: "M5 8h10v7.5H5V8Zm5-3.5V8M8 11.5h.01M12 11.5h.01M3 10.5v3M17 10.5v3",
  helm: "M10 5.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9Zm0 3a1.5 1.5 0 1 1 0 3 1.5 1.5 0 0 1 0-3ZM10 2v6.5M10 11.5V18M2 10h6.5M11.5 10H18M4.3 4.3 8.9 8.9M11.1 11.1l4.6 4.6M15.7 4.3l-4.6 4.6M8.9 11.1l-4.6 4.6",
};

export function icon(name, className = "") {
  return svg(PATHS[name], `icon ${className}`.trim());
}
