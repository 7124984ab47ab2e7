-- dead_letter: moves an inbox entry that can't be applied to the dead letters, with its reason. Of each partition
-- about the last 10,000 are kept.
--
-- KEYS  1 lease  2 dead  3 inbox  4 cmd hash (left out when there is no outcome)
-- ARGV  1 lease value  2 inbox entry id  3 reason  4 the entry's fields as JSON  5 now (ms)
--       6 outcome ('' = none)  7 channel that hears the outcome
-- Answers
--       OK                              moved
--       DUP                             the inbox has no such entry: moved or applied before; nothing changed
--       {FENCED, current lease or ''}   the caller does not hold the lease

local lease = redis.call('GET', KEYS[1])
if lease ~= ARGV[1] then return {'FENCED', lease or ''} end
if #redis.call('XRANGE', KEYS[3], ARGV[2], ARGV[2]) == 0 then return {ok = 'DUP'} end

if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[4], 'outcome', ARGV[6], 'at', ARGV[5])
  redis.call('PEXPIRE', KEYS[4], '3600000')
end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', '10000', '*', 'reason', ARGV[3], 'entry', ARGV[2], 'fields', ARGV[4], 'at', ARGV[5])
redis.call('XDEL', KEYS[3], ARGV[2])
if ARGV[6] ~= '' then redis.call('PUBLISH', ARGV[7], ARGV[6]) end
return {ok = 'OK'}
