// Shows tables, jobs and first rows, asked for every second while the page is looked at.
// What users stored reaches the page as text only: textContent, never markup.
"use strict";

const config = JSON.parse(document.getElementById("config").textContent);
const at = (id) => document.getElementById(id);
// The fragment never leaves the browser; it is taken out of the address once it is read.
let token = unquoted(location.hash.slice(1)) || sessionStorage.getItem("token") || "";
let chosen = null;
if (location.hash) history.replaceState(null, "", location.pathname);

function unquoted(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

// A number that JavaScript cannot hold, such as an id beyond 2^53, is shown as it was sent.
const exact = (name, value, seen) => (typeof value === "number" && String(value) !== seen?.source && seen?.source) || value;

async function ask(path) {
  const reply = await fetch(path, { headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
  if (reply.ok) return JSON.parse(await reply.text(), exact);
  const refusal = await reply.json().catch(() => ({}));
  throw Object.assign(new Error(refusal.detail || `HTTP ${reply.status}`), { status: reply.status });
}

function cell(value, kind = "") {
  const made = document.createElement("td");
  made.className = value === null || value === undefined ? "null" : kind;
  made.textContent = value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
  return made;
}

function row(...cells) {
  const made = document.createElement("tr");
  made.append(...cells);
  return made;
}

const bytes = (count) => (count < 1e6 ? `${Math.round(count / 1e3)} kB` : `${(count / 1e6).toFixed(1)} MB`);
const seconds = (job) => (Date.parse(job.finished_at || new Date().toISOString()) - Date.parse(job.created_at)) / 1000;
const time = (text) => (text ? new Date(text).toLocaleString() : null);

function tableRow(table) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = table.table_id;
  button.onclick = () => { chosen = table.table_id; refresh(); };
  const name = document.createElement("td");
  name.className = "text";
  name.append(button);
  return row(name, cell(table.row_count, "number"), cell(bytes(table.total_size_bytes), "number"),
    cell(table.snapshot_id && table.snapshot_id.slice(0, 8), "mono"), cell(time(table.last_updated)));
}

function jobRow(job) {
  return row(cell(job.job_id.slice(0, 8), "mono"), cell(job.kind), cell(job.table_id, "text"), cell(job.status, job.status),
    cell(Math.max(0, seconds(job)).toFixed(1), "number"), cell(job.error, "text"));
}

// What did not change stays as it is, with its focus and selection.
const before = {};
function show(id, values, made) {
  const text = JSON.stringify([values, id === "jobs" && values.some((job) => !job.finished_at) && Date.now()]);
  if (before[id] !== text) at(id).replaceChildren(...values.map(made));
  before[id] = text;
}

function heading(name) {
  const made = document.createElement("th");
  made.textContent = name;
  return made;
}

async function showFirst() {
  const table = chosen;
  at("first").hidden = table === null;
  if (table === null) return;
  const { columns, items } = await ask(`${config.tables}/${encodeURIComponent(table)}/rows`);
  if (table !== chosen) return; // another one was chosen meanwhile
  at("name").textContent = table;
  at("none").hidden = items.length > 0;
  show("columns", columns, heading);
  show("rows", items, (item) => row(...item.map((value) => cell(value))));
}

async function refresh() {
  try {
    const [tables, jobs] = await Promise.all([ask(config.tables), ask(config.jobs)]);
    show("tables", tables, tableRow);
    show("jobs", jobs, jobRow);
    await showFirst();
    sessionStorage.setItem("token", token);
    at("login").hidden = true;
    at("shown").hidden = false;
    at("state").textContent = `as of ${new Date().toLocaleTimeString()}`;
  } catch (failure) {
    at("state").textContent = token ? failure.message : "";
    at("login").hidden = failure.status !== 401 && failure.status !== 403;
    at("shown").hidden ||= !at("login").hidden;
  }
}

at("login").onsubmit = (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  refresh();
};

async function live() {
  if (!document.hidden && (token || at("login").hidden)) await refresh();
  setTimeout(live, 1000);
}

live();
