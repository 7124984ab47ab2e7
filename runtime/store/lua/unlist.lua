-- unlist: takes an execution that has no row off the lists of its partition, where a sweep would find it for ever.
--
-- KEYS  1 lease  2 row  3 backoff  4.. lists, those of backoffs last
-- ARGV  1 lease value  2 execution id  3 number of lists of backoffs
-- Answers
--       n                               it was on n lists; 0 also where it has a row: nothing changed
--       {FENCED, current lease or ''}   the caller does not hold the lease

local lease = redis.call('GET', KEYS[1])
if lease ~= ARGV[1] then return {'FENCED', lease or ''} end
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end

local lists = 0
for k = 4, #KEYS do
  if redis.call('ZREM', KEYS[k], ARGV[2]) == 1 then
    lists = lists + 1
    if k > #KEYS - tonumber(ARGV[3]) and redis.call('EXISTS', KEYS[k]) == 0 then
      redis.call('SREM', KEYS[3], string.sub(KEYS[k], #KEYS[3] + 2))
    end
  end
end
return lists
