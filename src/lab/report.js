"use strict";
// Everything on the page that a scenario or an engine said comes from here, as a text node or an attribute's value; there
// is no way from `results` into markup.
(() => {
  const results = JSON.parse(document.getElementById("results").textContent);
  const by_id = id => document.getElementById(id);

  // --- making elements ---------------------------------------------------------------------------------------------

  const fill = (element, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "onclick") element.addEventListener("click", value);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== ""));
    return element;
  };
  const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const draw = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  // Characters that a terminal or a browser would obey rather than show.
  const clean = text => text.replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    c => "\\x" + c.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0"));
  const wide = c => /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/.test(c) ||
    c.codePointAt(0) >= 0x1f300;
  const columns = text => [...text].reduce((sum, c) => sum + (wide(c) ? 2 : 1), 0);
  const wrap = (text, width) => {
    const lines = [];
    for (const part of clean(text).split("\n")) {
      let line = "", used = 0;
      for (let word of part.split(/(?<= )/)) {
        if (used > 0 && used + columns(word.trimEnd()) > width) lines.push(line.trimEnd()), line = "", used = 0;
        while (columns(word) > width && columns(word.trimEnd()) > width) {
          let head = "";
          for (const c of word) {
            if (head !== "" && columns(head + c) > width) break;
            head += c;
          }
          lines.push(head);
          word = word.slice(head.length);
        }
        line += word;
        used += columns(word);
      }
      lines.push(line.trimEnd());
    }
    return lines;
  };
  const fit = (text, width) => columns(clean(text)) <= width ? clean(text) : wrap(text, width - 1)[0] + "…";
  const time = us => us < 1000 ? us + " µs" : us < 1e6 ? (us / 1000).toFixed(us < 1e4 ? 1 : 0) + " ms" : (us / 1e6).toFixed(1) + " s";
  const plural = (count, word) => count + " " + word + (count === 1 ? "" : "s");

  // --- what there is to show ---------------------------------------------------------------------------------------

  const marks = { passed: "✓", failed: "✗", error: "!", skipped: "–" };
  const verdicts = Object.keys(marks);
  const engines = [];    // { name, version, url }
  const scenarios = [];  // { name, file, runs: [result or undefined by engine] }
  for (const result of results.results) {
    let engine = engines.findIndex(each => each.name === result.engine && each.url === result.url);
    if (engine < 0) engine = engines.push({ name: result.engine, version: "", url: result.url }) - 1;
    engines[engine].version ||= result.engine_version;
    let scenario = scenarios.find(each => each.name === result.scenario && each.file === result.file);
    if (!scenario) scenarios.push(scenario = { name: result.scenario, file: result.file, runs: [] });
    scenario.runs[engine] = result;
  }
  const engine_text = engine => clean((engine.name + " " + engine.version).trim());
  const link = (scenario, engine) => "#run-" + scenario + "-" + engine;
  const label_of = event => event.kind === "step" ? event.name : event.kind;
  const is_bad = words => /^(deadlock|error|serialization|timeout|busy|conflict|unknown)/.test(words);

  // --- the lanes ---------------------------------------------------------------------------------------------------

  const letter = 7.3, line_height = 16, head_height = 38, pad = 7, gap = 9;

  function lanes_of(result, room, choose) {
    const sessions = [...new Set([...result.sessions, ...result.events.map(event => event.session).filter(s => s)])];
    const count = Math.max(sessions.length, 1);
    const gutter = room < 480 ? 24 : 40;
    const lane_width = Math.min(Math.max((room - gutter - 4) / count, 140), 430);
    const width = gutter + count * lane_width + 4;
    const left = lane => gutter + lane * lane_width + 5;
    const middle = lane => gutter + (lane + 0.5) * lane_width;
    const letters = Math.max(Math.floor((lane_width - 10 - 2 * pad) / letter), 8);
    const all_letters = Math.floor((count * lane_width - 10 - 2 * pad) / letter);

    const back = draw("g"), rows = draw("g"), arrows = draw("g"), front = draw("g");
    const cycles = session => result.events.map((event, i) => event.cycle.includes(session) ? i : -1);
    const waiting = new Map();  // session: where its hatched stretch begins, and its reason
    let y = head_height + gap;

    const close = (session, bottom, open_end) => {
      const { top, from, reason } = waiting.get(session);
      const lane = sessions.indexOf(session);
      const circular = cycles(session).some(at => at > from && waiting.get(session).until >= at);
      const kind = circular ? " cycle" : "";
      back.append(draw("rect", { class: "stretch" + kind + (open_end ? " open-end" : ""), x: left(lane) + 8, y: top,
        width: lane_width - 26, height: Math.max(bottom - top, 4) }));
      const longest = Math.max(...reason.map(columns));
      back.append(draw("rect", { class: "reason-ground" + kind, x: left(lane) + 13, y: top + 4, rx: 3,
        width: longest * letter + 8, height: reason.length * 15 + 3 }));
      reason.forEach((line, i) => back.append(
        draw("text", { class: "reason wait" + kind, x: left(lane) + 17, y: top + 16 + i * 15 }, line)));
      waiting.delete(session);
    };

    result.events.forEach((event, index) => {
      const across = event.kind !== "step";
      const lane = Math.max(sessions.indexOf(event.session), 0);
      if (!across && waiting.has(event.session)) close(event.session, y, false);  // a step of one who still waits
      const lines = wrap(event.text, across ? all_letters : letters).map(text => ({ text, kind: "" }));
      const say = (text, kind) => lines.push(...wrap(text, across ? all_letters : letters).map(line => ({ text: line, kind })));
      if (!event.passed) {
        say("✗ got " + event.actual, "bad");
        say("expected " + (event.expected || "ok"), "bad");
      } else if (event.kind !== "setup") {
        say((event.blocked ? "… " : "→ ") + event.actual, event.blocked ? "wait" : is_bad(event.actual) ? "bad" : "good");
      }
      if (event.cycle.length > 0) say("⟳ " + [...event.cycle, event.cycle[0]].join(" → "), "bad");
      const height = lines.length * line_height + 2 * pad;
      const wait = event.waits.find(each => each.session === event.session);
      const reason = event.blocked && !across
        ? wrap("waits for " + (wait ? wait.blockers.join(", ") + (wait.object ? ": " + wait.object : "") : "somebody"), letters - 3)
        : [];
      // A freed session tells its end in this row, too: below each other if they are several of one lane.
      const ends = event.freed.filter(end => result.events[end.event] && waiting.has(result.events[end.event].session));
      const end_lines = ends.map(end => wrap(label_of(result.events[end.event]) + " → " + end.actual, letters - 3));
      const end_height = Math.max(0, ...end_lines.map(each => each.length * line_height + 8));
      const row_height = Math.max(height + (reason.length > 0 ? reason.length * 15 + 12 : 0), end_height + 12);

      const bad = !event.passed || event.cycle.length > 0 || is_bad(event.actual);
      const row = draw("g", { class: "row", "data-step": index, role: "button", tabindex: "-1",
        "aria-label": clean(["Step " + (index + 1), label_of(event), event.session, event.text, event.actual].filter(s => s).join(", ")) });
      if (choose) row.addEventListener("click", () => choose(index));
      row.append(draw("rect", { class: "band", x: 2, y: y - gap / 2, width: width - 4, height: row_height + gap, rx: 6 }));
      row.append(draw("text", { class: "label", x: 8, y: y + pad + 12 }, across ? "" : fit(event.name, gutter < 40 ? 2 : 4)));
      row.append(draw("rect", { class: "card" + (across ? " wide" : "") + (bad ? " bad" : event.blocked ? " blocked" : ""),
        x: across ? left(0) : left(lane), y, width: (across ? count * lane_width : lane_width) - 10, height, rx: 6 }));
      lines.forEach((line, i) => row.append(draw("text", { class: across && event.kind === "setup" && !line.kind ? "label" : line.kind,
        x: (across ? left(0) : left(lane)) + pad, y: y + pad + 12 + i * line_height }, line.text)));
      if (across && columns(lines[0].text) + 8 < all_letters) {
        row.append(draw("text", { class: "label kind", x: left(0) + count * lane_width - 10 - pad, y: y + pad + 12 }, event.kind));
      }
      rows.append(row);

      // For whom it waits; of a circle, for whom it would have.
      const targets = event.cycle.includes(event.session)
        ? [event.cycle[(event.cycle.indexOf(event.session) + 1) % event.cycle.length]]
        : event.blocked && wait ? wait.blockers : [];
      targets.filter(target => sessions.includes(target) && target !== event.session).forEach((target, i) => {
        const to = sessions.indexOf(target), at = y + 12 + 7 * i;
        const begin = to > lane ? left(lane) + lane_width - 10 : left(lane);
        // To the one who goes on: its line; to one who waits as well: its stretch.
        const end = !waiting.has(target) ? middle(to) : to > lane ? left(to) + 8 : left(to) + lane_width - 18;
        arrows.append(draw("path", { class: "arrow" + (event.cycle.length > 0 ? " cycle" : ""), d: "M" + begin + " " + at + "H" + end }));
      });
      for (const waiter of waiting.values()) waiter.until = index;
      if (event.blocked && !across) waiting.set(event.session, { top: y + height, from: index, until: index, reason });
      ends.forEach((end, i) => {
        const session = result.events[end.event].session, its = sessions.indexOf(session);
        const box = end_lines[i].length * line_height + 8, top = y + Math.max(height, end_height + 12) - box;
        close(session, top, false);
        const failed = is_bad(end.actual);
        front.append(draw("rect", { class: "end" + (failed ? " bad" : ""), x: left(its) + 8, y: top, width: lane_width - 26, height: box, rx: 5 }));
        end_lines[i].forEach((line, j) => front.append(
          draw("text", { class: failed ? "bad" : "good", x: left(its) + 15, y: top + 16 + j * line_height }, line)));
        if (its !== lane && !across) {
          const at = top + box / 2;
          arrows.append(draw("path", { class: "arrow freed",
            d: "M" + (its > lane ? left(lane) + lane_width - 10 : left(lane)) + " " + Math.min(at, y + height - 5) + "L" +
              (its > lane ? left(its) + 8 : left(its) + lane_width - 18) + " " + at }));
        }
      });
      y += row_height + gap;
    });
    for (const session of [...waiting.keys()]) close(session, y, true);

    const heads = draw("g");
    sessions.forEach((session, lane) => {
      heads.append(draw("line", { class: "lifeline", x1: middle(lane), x2: middle(lane), y1: head_height, y2: y }));
      heads.append(draw("rect", { class: "lane-head", x: left(lane), y: 6, width: lane_width - 10, height: head_height - 10, rx: 6 }));
      heads.append(draw("text", { class: "session", x: middle(lane), y: 25 }, fit(session, letters)));
    });
    return draw("svg", { width, height: y + 4, viewBox: "0 0 " + width + " " + (y + 4), role: "group",
      "aria-label": "Swim lanes of " + clean(sessions.join(", ")) }, heads, rows, back, arrows, front);
  }

  // --- who waits for whom, and who holds what ------------------------------------------------------------------------

  function graph_of(result, index) {
    const event = result.events[index];
    const edges = [];
    for (const wait of event.waits) {
      for (const blocker of wait.blockers) edges.push({ from: wait.session, to: blocker, object: wait.object, cycle: false });
    }
    event.cycle.forEach((from, i) => {
      const to = event.cycle[(i + 1) % event.cycle.length];
      const known = edges.find(edge => edge.from === from && edge.to === to);
      if (known) known.cycle = true;
      // When the step was over the circle was broken; what was waited for in it may have been seen before.
      const before = result.events.slice(0, index).reverse().flatMap(each => each.waits)
        .find(wait => wait.session === from && wait.blockers.includes(to));
      if (!known) edges.push({ from, to, object: before ? before.object : "", cycle: true });
    });
    if (edges.length === 0) return make("p", { class: "note" }, "Nobody waits.");

    const names = [...new Set([...result.sessions, ...edges.flatMap(edge => [edge.from, edge.to])])];
    const width = 340, height = names.length <= 2 ? 130 : 230;
    const place = names.map((_, i) => {
      const angle = names.length === 2 ? Math.PI * (1 - i) : 2 * Math.PI * i / names.length - Math.PI / 2;
      return { x: width / 2 + Math.cos(angle) * (width / 2 - 58), y: height / 2 + Math.sin(angle) * (height / 2 - 32) };
    });
    const lines = draw("g"), words = draw("g"), nodes = draw("g");
    for (const edge of edges) {
      const a = place[names.indexOf(edge.from)], b = place[names.indexOf(edge.to)];
      const dx = b.x - a.x, dy = b.y - a.y, length = Math.hypot(dx, dy) || 1;
      const opposite = edges.some(other => other.from === edge.to && other.to === edge.from);
      const bend = opposite ? 46 : 18;
      const x = (a.x + b.x) / 2 - dy / length * bend, y = (a.y + b.y) / 2 + dx / length * bend;
      // From edge to edge of the nodes, towards the bend.
      const leave = (node, toward) => {
        const ux = toward.x - node.x, uy = toward.y - node.y, u = Math.hypot(ux, uy) || 1;
        return { x: node.x + ux / u * 34, y: node.y + uy / u * 24 };
      };
      const from = leave(a, { x, y }), to = leave(b, { x, y });
      lines.append(draw("path", { class: "arrow" + (edge.cycle ? " cycle" : ""), d: `M${from.x} ${from.y}Q${x} ${y} ${to.x} ${to.y}` }));
      // What is waited for stands outside the bend.
      const word = { x: (from.x + to.x) / 4 + x / 2 - dy / length * 13, y: (from.y + to.y) / 4 + y / 2 + dx / length * 13 };
      if (edge.object) words.append(draw("text", { class: "object", x: word.x, y: word.y }, fit(edge.object, 22)));
    }
    names.forEach((name, i) => {
      const waits = edges.some(edge => edge.from === name), cycle = event.cycle.includes(name);
      nodes.append(draw("rect", { class: "node" + (cycle ? " cycle" : waits ? " waits" : ""), x: place[i].x - 30, y: place[i].y - 18,
        width: 60, height: 36, rx: 18 }));
      nodes.append(draw("text", { class: "session", x: place[i].x, y: place[i].y }, draw("title", {}, clean(name)), fit(name, 7)));
    });
    const told = edges.map(edge => edge.from + " waits for " + edge.to).join("; ") + (event.cycle.length > 0 ? ": a circle" : "");
    return draw("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": clean(told) }, lines, nodes, words);
  }

  function locks_of(result, index) {
    const locks = result.events[index].locks;
    if (locks.length === 0) return make("p", { class: "note" }, "Nothing is locked, as far as the engine shows.");
    const key = lock => [lock.session, lock.object, lock.mode, lock.granted].join("\u0000");
    const before = new Set(index > 0 ? result.events[index - 1].locks.map(key) : []);
    const order = [...locks].sort((a, b) => a.object < b.object ? -1 : a.object > b.object ? 1 : Number(b.granted) - Number(a.granted));
    return make("div", { class: "scroll" }, make("table", { class: "locks" },
      make("thead", {}, make("tr", {}, ["object", "session", "mode", ""].map(title => make("th", { scope: "col" }, title)))),
      make("tbody", {}, order.map(lock => make("tr", {
        class: [lock.granted ? "" : "waits", before.has(key(lock)) ? "" : "fresh"].join(" ").trim() || null },
      [lock.object, lock.session, lock.mode].map(text => make("td", {}, clean(text))),
      make("td", {}, lock.granted ? "holds" : "waits"))))));
  }

  // --- one scenario, open --------------------------------------------------------------------------------------------

  const narrow = matchMedia("(max-width: 900px)");
  let open = null;  // { scenario, engine, step, body, show }

  // Where to begin: what went wrong, or what the scenario is about.
  const first_step = result => {
    for (const test of [event => !event.passed, event => event.cycle.length > 0,
      event => [event, ...event.freed].some(each => each.actual.startsWith("deadlock")), event => event.blocked]) {
      const at = result.events.findIndex(test);
      if (at >= 0) return at;
    }
    return Math.max(result.events.length - 1, 0);
  };

  function facts_of(result, index) {
    const event = result.events[index];
    const rows = [];
    const add = (name, value, kind) => rows.push(make("dt", {}, name), make("dd", { class: kind }, value));
    if (!event.passed) {
      add("expected", clean(event.expected || "ok"));
      add("got", clean(event.actual), "wrong");
    }
    for (const end of event.freed) {
      const freed = result.events[end.event];
      if (freed) add("frees", clean(freed.session + " (" + label_of(freed) + "): " + end.actual));
    }
    if (event.cycle.length > 0) add("circle", clean([...event.cycle, event.cycle[0]].join(" → ")), "wrong");
    if (event.sent && event.sent !== event.text) add("sent", clean(event.sent));
    if (event.kind === "step") add("when", "after " + time(event.began_us) + ", for " + time(event.took_us));
    add("line", String(event.line));
    const kind = !event.passed ? "failed" : event.blocked ? "blocked" : is_bad(event.actual) ? "failed" : "passed";
    return [
      make("div", { class: "step" },
        make("b", {}, clean([event.session, label_of(event)].filter(s => s).join(" · "))), " ",
        make("span", { class: "chip " + kind }, clean(event.actual)),
        make("code", {}, clean(event.text)),
        event.why ? make("p", { class: "why" }, clean(event.why)) : null,
        make("dl", {}, rows)),
      make("h4", {}, "Who waits for whom"), graph_of(result, index),
      make("h4", {}, "Locks"), locks_of(result, index)];
  }

  function show_run(body, scenario, engine, wanted) {
    const { runs } = scenarios[scenario];
    const result = runs[engine];
    const parts = [];
    if (result.about.length > 0) parts.push(make("p", { class: "about" }, clean(result.about.join(" "))));
    parts.push(make("div", { class: "engines", role: "group", "aria-label": "Engine" }, runs.map((run, i) => make("button", {
      type: "button", "aria-pressed": String(i === engine), "data-engine": i,
      onclick: () => {
        const line = open.result.events.length > 0 ? open.result.events[open.step].line : -1;
        const same = run.events.findIndex(event => event.line === line);
        open_run(scenario, i, same >= 0 ? same : null);
        body.querySelector(`[data-engine="${i}"]`).focus();
      } }, engine_text(engines[i]) + " ", make("span", { class: "chip " + run.verdict }, marks[run.verdict] + " " + run.verdict)))));
    if (result.message) parts.push(make("p", { class: "message " + result.verdict }, clean(result.message)));
    open = { scenario, engine, result, step: 0, body };
    if (result.events.length === 0) {
      open.show = () => {};
      parts.push(make("p", { class: "note" }, "It was not played, so there is nothing to step through."));
      body.replaceChildren(...parts);
      remember();
      return;
    }
    const lanes = make("div", { class: "lanes", tabindex: "0", role: "region", "aria-label": "Swim lanes" });
    const facts = make("div", { class: "facts" });
    const told = make("output", { "aria-live": "polite" });
    const last = result.events.length - 1;
    const button = (text, name, to) => make("button", { type: "button", "aria-label": name, title: name, onclick: () => open.show(to()) }, text);
    const buttons = [button("«", "First step", () => 0), button("‹", "Previous step", () => open.step - 1),
      button("›", "Next step", () => open.step + 1), button("»", "Last step", () => last)];
    const sentence = make("p", { class: "why", "aria-hidden": "true" });  // on a narrow screen, where the facts are far below
    const controls = make("div", { class: "controls", role: "group", "aria-label": "Steps" },
      buttons[0], buttons[1], told, buttons[2], buttons[3], sentence);
    parts.push(make("div", { class: "play" }, lanes, make("div", { class: "panel" }, controls, facts)));
    body.replaceChildren(...parts);

    let drawn = 0;
    const draw_lanes = () => {
      if (lanes.clientWidth === drawn) return;
      drawn = lanes.clientWidth;
      lanes.replaceChildren(lanes_of(result, drawn, index => open.show(index)));
      mark();
    };
    const mark = () => {
      for (const row of lanes.querySelectorAll(".row")) {
        const selected = Number(row.dataset.step) === open.step;
        row.classList.toggle("selected", selected);
        if (selected) row.setAttribute("aria-current", "step"); else row.removeAttribute("aria-current");
      }
    };
    open.show = (index, first = false) => {
      open.step = Math.min(Math.max(index, 0), last);
      mark();
      facts.replaceChildren(...facts_of(result, open.step));
      sentence.textContent = clean(result.events[open.step].why || result.events[open.step].actual);
      told.textContent = "step " + (open.step + 1) + " of " + (last + 1);
      buttons[0].disabled = buttons[1].disabled = open.step === 0;
      buttons[2].disabled = buttons[3].disabled = open.step === last;
      remember();
      // The step stays in sight, unless somebody on a narrow screen is reading what is below the lanes.
      const card = lanes.querySelector(".row.selected .card");
      if (!first && card && (!narrow.matches || lanes.getBoundingClientRect().bottom > innerHeight - controls.offsetHeight)) {
        card.scrollIntoView({ block: "nearest", inline: "nearest" });
      }
    };
    open.show(wanted === null ? first_step(result) : wanted, true);
    draw_lanes();
    open.watch = new ResizeObserver(draw_lanes);
    open.watch.observe(lanes);
  }

  // The address says what is shown, so that it can be sent to somebody.
  function remember() {
    history.replaceState(null, "", link(open.scenario, open.engine) + "-" + open.step);
  }

  function close_open() {
    if (!open) return;
    if (open.watch) open.watch.disconnect();
    const article = by_id("scenario-" + open.scenario);
    article.classList.remove("open");
    article.querySelector("h3 button").setAttribute("aria-expanded", "false");
    article.querySelector(".body").replaceChildren();
    article.querySelector(".body").hidden = true;
    open = null;
  }

  function open_run(scenario, engine, step) {
    close_open();
    const article = by_id("scenario-" + scenario);
    article.hidden = false;
    article.classList.add("open");
    article.querySelector("h3 button").setAttribute("aria-expanded", "true");
    const body = article.querySelector(".body");
    body.hidden = false;
    show_run(body, scenario, engine, step);
    return article;
  }

  // The engine on which there is most to see.
  const best_engine = scenario => {
    const { runs } = scenarios[scenario];
    for (const verdict of ["failed", "error", "passed", "skipped"]) {
      const at = runs.findIndex(run => run && run.verdict === verdict);
      if (at >= 0) return at;
    }
    return 0;
  };

  function go_to(scenario, engine, step) {
    const article = open_run(scenario, engine, step);
    article.querySelector("h3 button").focus({ preventScroll: true });
    article.scrollIntoView({ block: "start" });
  }

  function follow_address() {
    const [, scenario, engine, step] = location.hash.match(/^#run-(\d+)-(\d+)(?:-(\d+))?$/) || [];
    if (scenario === undefined || !scenarios[scenario] || !scenarios[scenario].runs[engine]) return false;
    go_to(Number(scenario), Number(engine), step === undefined ? null : Number(step));
    return true;
  }

  // --- the page ------------------------------------------------------------------------------------------------------

  let only = null;  // a verdict
  const totals = Object.fromEntries(verdicts.map(verdict => [verdict, results.results.filter(r => r.verdict === verdict).length]));
  const took = results.results.reduce((sum, result) => sum + result.took_us, 0);
  by_id("summary").append(plural(scenarios.length, "scenario") + " on " + plural(engines.length, "engine") + ", " +
    plural(results.results.length, "run") + " in " + time(took));
  by_id("share").setAttribute("aria-label", verdicts.map(verdict => totals[verdict] + " " + verdict).join(", "));
  const words = { passed: "passed", failed: "failed", error: "could not be played", skipped: "skipped" };
  for (const verdict of verdicts) {
    if (totals[verdict] === 0) continue;
    by_id("share").append(make("span", { class: verdict, style: "flex:" + totals[verdict] }));
    by_id("totals").append(make("button", { type: "button", "data-verdict": verdict, "aria-pressed": "false", onclick: () => {
      only = only === verdict ? null : verdict;
      for (const each of by_id("totals").children) each.setAttribute("aria-pressed", String(each.dataset.verdict === only));
      scenarios.forEach((scenario, i) => {
        const hidden = only !== null && !scenario.runs.some(run => run && run.verdict === only);
        by_id("line-" + i).hidden = hidden;
        by_id("scenario-" + i).hidden = hidden;
      });
    } }, make("b", {}, String(totals[verdict])), " " + words[verdict]));
  }

  by_id("grid").append(
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "scenario"),
      engines.map(engine => make("th", { scope: "col", title: clean(engine.url) }, clean(engine.name) + " ", make("small", {}, clean(engine.version)))))),
    make("tbody", {}, scenarios.map((scenario, i) => make("tr", { id: "line-" + i },
      make("th", { scope: "row" }, make("a", { href: link(i, best_engine(i)) }, clean(scenario.name)),
        make("small", {}, clean([...new Set(scenario.runs.flatMap(run => run.proves))].join(", ")))),
      engines.map((engine, j) => {
        const run = scenario.runs[j];
        if (!run) return make("td", { class: "note" }, "");
        return make("td", {}, make("a", { class: "chip " + run.verdict, href: link(i, j), title: clean(run.message) || null,
          "aria-label": clean(scenario.name + " on " + engine_text(engine) + ": " + run.verdict) },
        marks[run.verdict], make("span", { class: "word" }, " " + run.verdict)));
      })))));

  // X2: engine x level x anomaly, of the scenarios that have these facts.
  const cells = [];
  scenarios.forEach((scenario, i) => scenario.runs.forEach((run, j) => {
    const { level, anomaly, shows } = run.facts;
    if (!level || !anomaly) return;
    // What is told is what the scenario shows; that it does show it is the verdict.
    const word = { passed: shows || "?", failed: "not as told", error: "error", skipped: "not supported" }[run.verdict];
    cells.push({ i, j, level, anomaly, word });
  }));
  if (cells.length > 0) {
    const known = ["read uncommitted", "read committed", "repeatable read", "snapshot", "serializable"];
    const rank = level => known.includes(level) ? known.indexOf(level) : known.length;
    const levels = [...new Set(cells.map(cell => cell.level))].sort((a, b) => rank(a) - rank(b));
    const anomalies = [...new Set(cells.map(cell => cell.anomaly))];
    const kinds = { "prevented": "prevented", "happens": "happens", "not supported": "skipped", "error": "error", "not as told": "failed" };
    by_id("isolation").hidden = false;
    by_id("levels").append(
      make("thead", {}, make("tr", {}, ["level", ...anomalies].map(title => make("th", { scope: "col" }, clean(title))))),
      make("tbody", {}, engines.flatMap((engine, j) => {
        const rows = levels.filter(level => cells.some(cell => cell.j === j && cell.level === level));
        const head = make("tr", { class: "engine" }, make("th", { scope: "rowgroup", colspan: anomalies.length + 1 }, engine_text(engine)));
        return rows.length === 0 ? [] : [head, ...rows.map(level => make("tr", {}, make("th", { scope: "row" }, clean(level)),
          anomalies.map(anomaly => {
            const cell = cells.find(each => each.j === j && each.level === level && each.anomaly === anomaly);
            if (!cell) return make("td", { class: "note" }, "–");
            return make("td", {}, make("a", { class: "chip " + (kinds[cell.word] || ""), href: link(cell.i, j),
              "aria-label": clean([engine_text(engine), level, anomaly].join(", ") + ": " + cell.word) }, clean(cell.word)));
          })))];
      })));
  }

  by_id("scenarios").append(...scenarios.map((scenario, i) => make("article", { class: "scenario", id: "scenario-" + i },
    make("h3", {}, make("button", { type: "button", "aria-expanded": "false", onclick: () => {
      if (open && open.scenario === i) close_open(), history.replaceState(null, "", "#");
      else open_run(i, best_engine(i), null);
    } }, make("span", { class: "name" }, clean(scenario.name)),
    make("span", { class: "dots" }, scenario.runs.map((run, j) => make("span", { class: "dot " + run.verdict, role: "img",
      title: engine_text(engines[j]) + ": " + run.verdict, "aria-label": engine_text(engines[j]) + ": " + run.verdict }, marks[run.verdict]))))),
    make("div", { class: "body", hidden: true }))));
  by_id("made").append("hierlock " + clean(results.hierlock));

  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const steps = open && { ArrowLeft: open.step - 1, ArrowRight: open.step + 1, Home: 0, End: Infinity };
    if (steps && event.key in steps) {
      open.show(steps[event.key]);
      event.preventDefault();
    } else if (event.key === "j" || event.key === "k") {
      const shown = scenarios.map((_, i) => i).filter(i => !by_id("scenario-" + i).hidden);
      const at = open ? shown.indexOf(open.scenario) : event.key === "j" ? -1 : shown.length;
      const next = shown[at + (event.key === "j" ? 1 : -1)];
      if (next === undefined) return;
      const same = open && scenarios[next].runs[open.engine] && scenarios[next].runs[open.engine].events.length > 0;
      go_to(next, same ? open.engine : best_engine(next), null);
      event.preventDefault();
    }
  });
  window.addEventListener("hashchange", follow_address);

  // On paper nobody can step, so there every run is drawn, with all its reasons.
  window.addEventListener("beforeprint", () => {
    by_id("paper").replaceChildren(...scenarios.flatMap((scenario, i) => scenario.runs.map((run, j) => make("article", {},
      make("h3", {}, clean(scenario.name) + " — " + engine_text(engines[j]) + " ", make("span", { class: "chip " + run.verdict }, run.verdict)),
      run.message ? make("p", { class: "message " + run.verdict }, clean(run.message)) : null,
      run.events.length > 0 ? make("div", { class: "drawing" }, lanes_of(run, 700, null)) : null,
      make("ol", {}, run.events.map((event, k) => event.why
        ? make("li", { value: k + 1 }, clean([event.session, label_of(event)].filter(s => s).join(" ") + ": " + event.why)) : null))))));
  });
  window.addEventListener("afterprint", () => by_id("paper").replaceChildren());

  if (!follow_address() && scenarios.length > 0) {
    const failed = scenarios.findIndex(scenario => scenario.runs.some(run => run.verdict === "failed"));
    const first = Math.max(failed, 0);
    open_run(first, best_engine(first), null);
    history.replaceState(null, "", location.pathname + location.search);
  }
})();
