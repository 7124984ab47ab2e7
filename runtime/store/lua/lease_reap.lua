-- lease_reap: after a shard's death: writes who was at work, and frees its lease. Sent again it changes nothing.
--
-- KEYS  1 lease  2 epoch  3 suspects
-- ARGV  1 the dead holder's lease value ('' = unknown)  2 its epoch  3 id of its black box
--       4 boxed: the box was read, and shows every step that ran; '' = it is not known what ran  5 number of strikes
--       then for each strike: field, cause
--       then for each execution with interrupted steps: field, value
-- Answers
--       {OK}                      the lease is free, now or before
--       {LOST, current lease}     it is not that holder's any more; only the strikes count

for i = 6, 5 + 2 * tonumber(ARGV[5]), 2 do
  local count, box = string.match(redis.call('HGET', KEYS[3], ARGV[i]) or '', '^(%d+)|(%x*)|')
  if box ~= ARGV[3] then
    local strikes = string.format('%d', tonumber(count or '0') + 1)
    redis.call('HSET', KEYS[3], ARGV[i], strikes .. '|' .. ARGV[3] .. '|' .. ARGV[i + 1])
  end
end

local lease = redis.call('GET', KEYS[1])
local number, mark = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+)|?(%a*)$')
local held = lease and lease == ARGV[1]
local free = not lease and number == ARGV[2]
if not held and not free then return {'LOST', lease or ''} end
if mark == 'released' or (free and mark == 'boxed') then return {'OK'} end

-- An owner that has not seen to all that the one before it left can't say what is interrupted: then nobody knows.
if ARGV[4] == 'boxed' and mark ~= '' then
  for i = 6 + 2 * tonumber(ARGV[5]), #ARGV, 2 do
    redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  end
  redis.call('SET', KEYS[2], ARGV[2] .. '|boxed')
end
redis.call('DEL', KEYS[1])
return {'OK'}
