-- suspects_forget: takes back what earlier deaths of shards have left against executions and inbox entries.
--
-- KEYS  1 lease  2 suspects
-- ARGV  1 lease value  2.. fields
-- Answers
--       OK                              there are no such fields, now or before
--       {FENCED, current lease or ''}   the caller does not hold the lease

local lease = redis.call('GET', KEYS[1])
if lease ~= ARGV[1] then return {'FENCED', lease or ''} end
for i = 2, #ARGV do
  redis.call('HDEL', KEYS[2], ARGV[i])
end
return {ok = 'OK'}
