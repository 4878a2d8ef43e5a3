"""Real Chromium: a pool of browser workers, and environments whose pages are read from it. In order of dependency:

page.js, listeners.js, announced.js    in the page: reading a document, acting on its elements, what is to come
wire, processes, origins, proxy    messages; processes and their end; the allow-list; the only way out
secret                             what an agent types without knowing it, and its mask
tab, reader, session, worker       in the worker: settling, numbering, one context, the loop (imports Playwright)
pool                               in the user's process: the cap, deadlines, replacement
server, hosts, miniwob             what stands behind an environment: built-in sites over HTTP, MiniWoB++
budget, views, states, drive, env  the Env: text, commands, states, ways back, steps
"""
