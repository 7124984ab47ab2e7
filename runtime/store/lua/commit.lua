-- commit: writes what one decision changed in an execution's row, under the partition's lease.
--
-- KEYS  1 lease  2 row  3 seq  4 events
--       of a commit that touches more than the row and its events:
--       5 live  6 inbox
--       7.. one cmd hash for each applied command that has an outcome
--       then the suspects, if it forgets; then backoff and the backoff:<flow> of its flow, if that changes
--       then the lists that it leaves, then those on which it stands from now on
-- ARGV  1 lease value  2 expected rev  3 next rev  4 commit id  5 now (ms)
--       6 event ('' = none)  7 number of deleted fields
--       8 number of applied commands; '' where the commit touches only the row and its events: then 9 to 17 are left out
--       9 execution id  10 live: keep, drop or a score  11 the new status ('' = as before)
--       12 channel that hears of the end ('' = none)
--       13 what its suspects' fields are to be forgotten: '', i (interrupted steps), x (strikes) or xi
--       14 when its first step that backs off is due: '' (as before), drop or a score
--       15 number of lists that it leaves  16 number of lists on which it stands  17 by which time (ms)
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

local applied, deleted = tonumber(ARGV[8]), 18
local id, live, status, channel, forget, due = ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[13], ARGV[14]
if not applied then
  applied, deleted, live, status, channel, forget, due = 0, 9, 'keep', '', '', '', ''
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
if deleted > 9 then
  local stands = #KEYS - tonumber(ARGV[16])
  local leaves = stands - tonumber(ARGV[15])
  for k = leaves + 1, stands do redis.call('ZREM', KEYS[k], id) end
  for k = stands + 1, #KEYS do redis.call('ZADD', KEYS[k], ARGV[17], id) end
  local flow, suspects = leaves, leaves
  if due ~= '' then
    local flows = leaves - 1
    suspects = leaves - 2
    local name = string.sub(KEYS[flow], #KEYS[flows] + 2)
    if due ~= 'drop' then
      redis.call('ZADD', KEYS[flow], due, id)
      redis.call('SADD', KEYS[flows], name)
    elseif redis.call('ZREM', KEYS[flow], id) == 1 and redis.call('EXISTS', KEYS[flow]) == 0 then
      redis.call('SREM', KEYS[flows], name)
    end
  end
  for kind in string.gmatch(forget, '%a') do redis.call('HDEL', KEYS[suspects], kind .. ':' .. id) end
end
if ARGV[6] ~= '' then redis.call('XADD', KEYS[4], '*', 'e', ARGV[6]) end
-- Cut down now and then: with each entry it would cost a third of it.
if seq % 64 == 0 then redis.call('XTRIM', KEYS[4], 'MAXLEN', '~', '10000') end
if applied > 0 then
  local k = 7
  for i = commands, first - 1, 3 do
    if ARGV[i + 1] ~= '' then
      redis.call('HSET', KEYS[k], 'outcome', ARGV[i + 1], 'at', ARGV[5])
      redis.call('PEXPIRE', KEYS[k], '3600000')
      k = k + 1
    end
  end
end
for i = commands, first - 1, 3 do
  if ARGV[i] ~= '' then redis.call('XDEL', KEYS[6], ARGV[i]) end
end

for i = deleted, commands - 1, 1000 do
  redis.call('HDEL', KEYS[2], unpack(ARGV, i, math.min(i + 999, commands - 1)))
end
while last - first > 999 do
  redis.call('HSET', KEYS[2], unpack(ARGV, first, first + 999))
  first = first + 1000
end
if status ~= '' then
  redis.call('HSET', KEYS[2], 'rev', ARGV[3], 'commit', ARGV[4], 'updated_at', ARGV[5], 'status', status,
    unpack(ARGV, first, last))
else
  redis.call('HSET', KEYS[2], 'rev', ARGV[3], 'commit', ARGV[4], 'updated_at', ARGV[5], unpack(ARGV, first, last))
end

for i = commands, commands + 3 * applied - 1, 3 do
  if ARGV[i + 1] ~= '' then redis.call('PUBLISH', ARGV[i + 2], ARGV[i + 1]) end
end
if channel ~= '' then redis.call('PUBLISH', channel, ARGV[11]) end
return seq
