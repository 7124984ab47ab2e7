-- lease_renew: lengthens a lease, or takes it back when it vanished and nobody was granted it since. A grant of which
-- Redis knows only older ones was lost with its last writes: it is taken back too, for who holds it remembers more.
--
-- KEYS  1 lease  2 epoch  3 seq
-- ARGV  1 lease value  2 epoch of that grant  3 TTL (ms)
--       4 seen: all is seen to that the holder before left, or it is known (this is remembered); '' = not yet
-- Answers
--       {OK, seq, retaken}              retaken is 1 when the lease was gone and the epoch shows no later grant
--       {LOST, current lease or ''}     another grant was made, or the lease was released

local lease = redis.call('GET', KEYS[1])
local epoch = redis.call('GET', KEYS[2]) or ''
local seq = redis.call('GET', KEYS[3]) or '0'
if lease == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  if ARGV[4] ~= '' and epoch == ARGV[2] then redis.call('SET', KEYS[2], epoch .. '|known') end
  return {'OK', seq, '0'}
end
local granted = epoch == ARGV[2] or epoch == ARGV[2] .. '|clean' or epoch == ARGV[2] .. '|known'
if not lease and granted then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
  return {'OK', seq, '1'}
end
local mine = tonumber(ARGV[2])
local last = tonumber(string.match(epoch, '^%d+') or '0')
local held = lease and tonumber(string.match(lease, '^[^|]+|(%d+)|') or ARGV[2]) or 0
if last < mine and held < mine then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
  redis.call('SET', KEYS[2], ARGV[2])
  return {'OK', seq, '1'}
end
return {'LOST', lease or ''}
