-- lease_release: gives a lease back and remembers that nothing was interrupted.
--
-- KEYS  1 lease  2 epoch
-- ARGV  1 lease value  2 epoch of that grant
-- Answers
--       {OK}                            released, now or before
--       {LOST, current lease or ''}     the caller did not hold it; nothing changed

local lease = redis.call('GET', KEYS[1])
local released = ARGV[2] .. '|released'
if lease == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[2], released)
  return {'OK'}
end
if not lease and redis.call('GET', KEYS[2]) == released then return {'OK'} end
return {'LOST', lease or ''}
