-- restore: brings a row back from its owner's memory after Redis lost acknowledged commits.
--
-- KEYS  1 lease  2 row  3 seq  4 live  5 backoff  6 backoff:<flow> of its flow
--       7.. lists on which it may have stood, then those on which it stands
-- ARGV  1 lease value  2 rev  3 commit id  4 now (ms)  5 execution id  6 live: drop or a score
--       7 status  8 number of lists on which it stands, by which time (ms) stands in 11  9 channel that hears of the end ('' = none)
--       10 when its first step that backs off is due: drop or a score
--       12.. pairs of field and value: the whole row but for status, rev, commit and updated_at
-- Answers
--       the partition's new seq                 the row is as given
--       {DUP, the partition's seq}              this very restore (or the commit itself) is there; nothing changed
--       {FENCED, current lease or ''}           the caller does not hold the lease
--       {CONFLICT, stored rev, stored commit}   the stored row is not older: it is left alone

local lease = redis.call('GET', KEYS[1])
if lease ~= ARGV[1] then return {'FENCED', lease or ''} end

local stored = redis.call('HMGET', KEYS[2], 'rev', 'commit')
if stored[1] == ARGV[2] and stored[2] == ARGV[3] then
  redis.call('HSET', KEYS[2], 'commit', ARGV[3])
  return {'DUP', redis.call('GET', KEYS[3]) or '0'}
end
local rev = stored[1] and string.match(stored[1], '^%d+$')
if rev and tonumber(rev) >= tonumber(ARGV[2]) then
  return {'CONFLICT', rev, stored[2] or ''}
end
local first, last = 12, #ARGV
if (last - first) % 2 ~= 1 then
  return redis.error_reply('ERR restore needs pairs of field and value')
end

-- The first write must be one that a full server refuses: after it, the rest of a script is let through.
local live = ARGV[6]
if live ~= 'drop' then redis.call('ZADD', KEYS[4], live, ARGV[5]) end
local seq = redis.call('INCR', KEYS[3])
if live == 'drop' then redis.call('ZREM', KEYS[4], ARGV[5]) end
local due = ARGV[10]
local flow = string.sub(KEYS[6], #KEYS[5] + 2)
if due ~= 'drop' then
  redis.call('ZADD', KEYS[6], due, ARGV[5])
  redis.call('SADD', KEYS[5], flow)
elseif redis.call('ZREM', KEYS[6], ARGV[5]) == 1 and redis.call('EXISTS', KEYS[6]) == 0 then
  redis.call('SREM', KEYS[5], flow)
end
local stands = #KEYS - tonumber(ARGV[8])
for k = 7, stands do redis.call('ZREM', KEYS[k], ARGV[5]) end
for k = stands + 1, #KEYS do redis.call('ZADD', KEYS[k], ARGV[11], ARGV[5]) end

redis.call('DEL', KEYS[2])
while last - first > 999 do
  redis.call('HSET', KEYS[2], unpack(ARGV, first, first + 999))
  first = first + 1000
end
redis.call('HSET', KEYS[2], 'rev', ARGV[2], 'commit', ARGV[3], 'updated_at', ARGV[4], 'status', ARGV[7],
  unpack(ARGV, first, last))
if ARGV[9] ~= '' then redis.call('PUBLISH', ARGV[9], ARGV[7]) end
return seq
