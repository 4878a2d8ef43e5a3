"""Environments that live in another Python, or on another machine: `NAME@ADDRESS`. In order of dependency:

start, env_process    in the other Python, which has no agentq: the process of one session, standard library only
axtree, browsergym    an adapter in the other Python: any BrowserGym environment
address, token    HOST:PORT or the path of a Unix socket; access control for the former
stream            reading from a connection with a deadline
env_server        `agentq env serve`: one process per session, which ends with its connection
connection        one session at the user's end; docs/protocol.md defines the messages
client            the Env
"""
