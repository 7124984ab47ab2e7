-- commit: writes what one decision changed in an execution's row, under the partition's lease.
--
-- KEYS  1 lease  2 row  3 seq  4 events
--       of a commit that touches more than the row and its events:
--       5 live  6 by:<status before>  7 by:<status after>  8 inbox
--       9.. one cmd hash for each applied command that has an outcome; the suspects, if it forgets
--       at the end, if that changes: backoff, and the backoff:<flow> of its flow
--       Trailing keys from the fifth on that this commit does not use may be left out.
-- ARGV  1 lease value  2 expected rev  3 next rev  4 commit id  5 now (ms)
--       6 event ('' = none)  7 number of deleted fields
--       8 number of applied commands; '' where the commit touches only the row and its events: then 9 to 15 are left out
--       9 execution id  10 live: keep, drop or a score  11 status before  12 status after
--       13 channel that hears of the end ('' = none)
--       14 what its suspects' fields are to be forgotten: '', i (interrupted steps), x (strikes) or xi
--       15 when its first step that backs off is due: '' (as before), drop or a score
--       then the deleted fields
--       then for each applied command: inbox entry id ('' = none), outcome ('' = none), channel
--       then pairs of field and value
-- Answers
--       the partition's new seq                 written
--       {DUP, the partition's seq}              this very commit was written before; nothing changed
--       {FENCED, current lease or ''}           the caller does not hold the lease
--       {CONFLICT, stored rev, stored commit}   the row is elsewhere; -1: no row, or none with a readable rev
--       An error reply means that the row did not change: it is written last.

local lease = redis.call('GET', KEYS[1])
if lease ~= ARGV[1] then return {'FENCED', lease or ''} end

local stored = redis.call('HMGET', KEYS[2], 'rev', 'commit')
if stored[2] == ARGV[4] then
  -- Written again so that a WAIT or WAITAOF after it on this connection covers the commit.
  redis.call('HSET', KEYS[2], 'commit', ARGV[4])
  return {'DUP', redis.call('GET', KEYS[3]) or '0'}
end
if stored[1] ~= ARGV[2] then
  local rev = stored[1] and string.match(stored[1], '^%d+$')
  return {'CONFLICT', rev or '-1', stored[2] or ''}
end

local applied, deleted = tonumber(ARGV[8]), 16
local id, live, moved, channel, forget, due = ARGV[9], ARGV[10], ARGV[11] ~= ARGV[12], ARGV[13], ARGV[14], ARGV[15]
if not applied then
  applied, deleted, live, moved, channel, forget, due = 0, 9, 'keep', false, '', '', ''
end
local commands = deleted + tonumber(ARGV[7])
local first = commands + 3 * applied
local last = #ARGV
if (last - first) % 2 ~= 1 then
  return redis.error_reply('ERR commit needs pairs of field and value')
end
for i = commands, first - 1, 3 do
  if ARGV[i] ~= '' and not string.find(ARGV[i], '^%d+%-%d+$') then
    return redis.error_reply('ERR commit got a malformed inbox entry id')
  end
end

if due ~= '' and due ~= 'drop' and not tonumber(due) then
  return redis.error_reply('ERR commit got a due time that is no number')
end

-- The first write must be one that a full server refuses: after it, the rest of a script is let through.
if live ~= 'keep' and live ~= 'drop' then redis.call('ZADD', KEYS[5], live, id) end
local seq = redis.call('INCR', KEYS[3])
if live == 'drop' then redis.call('ZREM', KEYS[5], id) end
local flow = #KEYS
if due ~= '' then
  local flows = flow - 1
  local name = string.sub(KEYS[flow], #KEYS[flows] + 2)
  if due ~= 'drop' then
    redis.call('ZADD', KEYS[flow], due, id)
    redis.call('SADD', KEYS[flows], name)
  elseif redis.call('ZREM', KEYS[flow], id) == 1 and redis.call('EXISTS', KEYS[flow]) == 0 then
    redis.call('SREM', KEYS[flows], name)
  end
end
if forget ~= '' then
  local suspects = due == '' and flow or flow - 2
  for kind in string.gmatch(forget, '%a') do redis.call('HDEL', KEYS[suspects], kind .. ':' .. id) end
end
if moved then
  redis.call('ZREM', KEYS[6], id)
  redis.call('ZADD', KEYS[7], ARGV[5], id)
end
if ARGV[6] ~= '' then redis.call('XADD', KEYS[4], '*', 'e', ARGV[6]) end
-- Cut down now and then: with each entry it would cost a third of it.
if seq % 64 == 0 then redis.call('XTRIM', KEYS[4], 'MAXLEN', '~', '10000') end
if applied > 0 then
  local k = 9
  for i = commands, first - 1, 3 do
    if ARGV[i + 1] ~= '' then
      redis.call('HSET', KEYS[k], 'outcome', ARGV[i + 1], 'at', ARGV[5])
      redis.call('PEXPIRE', KEYS[k], '3600000')
      k = k + 1
    end
  end
end
for i = commands, first - 1, 3 do
  if ARGV[i] ~= '' then redis.call('XDEL', KEYS[8], ARGV[i]) end
end

for i = deleted, commands - 1, 1000 do
  redis.call('HDEL', KEYS[2], unpack(ARGV, i, math.min(i + 999, commands - 1)))
end
while last - first > 999 do
  redis.call('HSET', KEYS[2], unpack(ARGV, first, first + 999))
  first = first + 1000
end
if moved then
  redis.call('HSET', KEYS[2], 'rev', ARGV[3], 'commit', ARGV[4], 'updated_at', ARGV[5], 'status', ARGV[12],
    unpack(ARGV, first, last))
else
  redis.call('HSET', KEYS[2], 'rev', ARGV[3], 'commit', ARGV[4], 'updated_at', ARGV[5], unpack(ARGV, first, last))
end

for i = commands, commands + 3 * applied - 1, 3 do
  if ARGV[i + 1] ~= '' then redis.call('PUBLISH', ARGV[i + 2], ARGV[i + 1]) end
end
if channel ~= '' then redis.call('PUBLISH', channel, ARGV[12]) end
return seq
