"""Real Chromium: a pool of browser workers, and environments whose pages are read from it. In order of dependency:

page.js, listeners.js, announced.js    in the page: reading a document, acting on its elements, announcing timers
wire, processes, origins, proxy    messages; processes and their end; the allow-list; the only way out
secret                             values that an agent types without knowing them, and their mask
tab, frames, reader, context       in the worker: settling, documents, numbering, what the browser reports
breaks, keyboard                   line breaks of typed text; typing it
gestures, look, session, worker    in the worker: acts, replies, calls, the loop (imports Playwright)
pool                               in the user's process: the cap, deadlines, replacement
site_server, hosts, miniwob        what is behind an environment: built-in sites over HTTP, MiniWoB++
budget, views, states, drive, env  the Env: text, commands, states, ways back, steps
"""
