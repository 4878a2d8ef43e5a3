"""Environments that live in another Python, or on another machine: `NAME@ADDRESS`. In order of dependency:

start, session    in the other Python, which has no agentq: the process of one session, standard library only
axtree, browsergym    an adapter, there too: any BrowserGym environment
address, token    HOST:PORT or the path of a Unix socket; who may use the former
stream            what a connection says until a moment
server            `agentq env serve`: one process a session, ended when its connection is
connection        one session from the user's end; docs/protocol.md says what is said
client            the Env
"""
