"""Redis: key names, Lua scripts, connections and the embedded server. Nothing above this package speaks Redis."""
