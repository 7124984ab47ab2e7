-- create: makes a queued execution where none is; run by clients, needs no lease.
--
-- KEYS  1 row  2 live  3 inbox  4 events  5.. lists on which it stands from now on, by:queued among them
-- ARGV  1 execution id  2 flow  3 hash of the input  4 now (ms)  5 live score  6 event ('' = none)
--       7.. pairs of field and value
-- Answers
--       {CREATED}                            row, indexes and doorbell are written
--       {EXISTS, flow, input hash, status}   a row is there; nothing changes

if redis.call('EXISTS', KEYS[1]) == 1 then
  local row = redis.call('HMGET', KEYS[1], 'flow', 'input_hash', 'status')
  if row[1] == ARGV[2] and row[2] == ARGV[3] then
    -- Written again so that a WAIT or WAITAOF after it on this connection covers the execution.
    redis.call('HSET', KEYS[1], 'flow', row[1])
  end
  return {'EXISTS', row[1] or '', row[2] or '', row[3] or ''}
end
local first, last = 7, #ARGV
if (last - first) % 2 ~= 1 then
  return redis.error_reply('ERR create needs pairs of field and value')
end

redis.call('ZADD', KEYS[2], ARGV[5], ARGV[1])
for k = 5, #KEYS do redis.call('ZADD', KEYS[k], ARGV[4], ARGV[1]) end
redis.call('XADD', KEYS[3], '*', 'type', 'start', 'execution', ARGV[1], 'flow', ARGV[2], 'at', ARGV[4], 'v', '1')
if ARGV[6] ~= '' then
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', '10000', '*', 'e', ARGV[6])
end
while last - first > 999 do
  redis.call('HSET', KEYS[1], unpack(ARGV, first, first + 999))
  first = first + 1000
end
redis.call('HSET', KEYS[1], 'rev', '1', 'status', 'queued', 'flow', ARGV[2], 'input_hash', ARGV[3],
  'created_at', ARGV[4], 'updated_at', ARGV[4], unpack(ARGV, first, last))
return {'CREATED'}
