-- lease_free: removes the lease of a process that is known to be dead. Its release does not count as clean.
--
-- KEYS  1 lease
-- ARGV  1 lease value
-- Answers
--       {OK}                            that lease is gone, now or before
--       {LOST, current lease}           another one holds it; nothing changed

local lease = redis.call('GET', KEYS[1])
if lease and lease ~= ARGV[1] then return {'LOST', lease} end
redis.call('DEL', KEYS[1])
return {'OK'}
