-- unlist: takes an execution that has no row off the lists of its partition, where a sweep would find it for ever.
--
-- KEYS  1 lease  2 row  3 live  4.. status lists, then backoff, then the backoff:<flow> of flows that it may be of
-- ARGV  1 lease value  2 execution id  3 position of backoff in KEYS
-- Answers
--       n                               it was on n lists; 0 also where it has a row: nothing changed
--       {FENCED, current lease or ''}   the caller does not hold the lease

local lease = redis.call('GET', KEYS[1])
if lease ~= ARGV[1] then return {'FENCED', lease or ''} end
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end

local lists = 0
local flows = tonumber(ARGV[3])
for k = 3, flows - 1 do
  lists = lists + redis.call('ZREM', KEYS[k], ARGV[2])
end
for k = flows + 1, #KEYS do
  if redis.call('ZREM', KEYS[k], ARGV[2]) == 1 then
    lists = lists + 1
    if redis.call('EXISTS', KEYS[k]) == 0 then
      redis.call('SREM', KEYS[flows], string.sub(KEYS[k], #KEYS[flows] + 2))
    end
  end
end
return lists
