-- lease_acquire: grants a partition that nobody holds, under a new and higher epoch.
--
-- KEYS  1 lease  2 epoch  3 seq
-- ARGV  1 now (ms)  2 TTL (ms)  3 owner  4 incarnation  5 host information; none of 3-5 holds a '|'
-- Answers
--       {GRANTED, epoch, lease value, clean, seq}   clean is 1 when the holder before released it
--       {HELD, lease value}                         another one holds it
--
-- The epoch key holds `N`, `N|clean` (granted after a release) or `N|released`. The middle form keeps a
-- repeated request, whose first reply was lost, from hearing another answer.

local lease = redis.call('GET', KEYS[1])
local said = redis.call('GET', KEYS[2]) or ''
local seq = redis.call('GET', KEYS[3]) or '0'
local number, mark = string.match(said, '^(%d+)|?(%a*)$')

local head, tail = ARGV[3] .. '|', '|' .. ARGV[4] .. '|' .. ARGV[5]
if lease then
  local middle = string.sub(lease, #head + 1, -#tail - 1)
  if lease ~= head .. middle .. tail or not string.find(middle, '^%d+$') then
    -- A lease without TTL is not ours (a foreign SET, say) and would block its partition for ever.
    if redis.call('PTTL', KEYS[1]) == -1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
    return {'HELD', lease}
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  if number ~= middle then
    redis.call('SET', KEYS[2], middle)
    mark = ''
  end
  return {'GRANTED', middle, lease, mark == 'clean' and '1' or '0', seq}
end

local epoch = math.max(tonumber(number or '0') + 1, tonumber(ARGV[1]))
epoch = string.format('%.0f', epoch)
local clean = mark == 'released'
lease = head .. epoch .. tail
redis.call('SET', KEYS[1], lease, 'PX', ARGV[2])
redis.call('SET', KEYS[2], clean and epoch .. '|clean' or epoch)
return {'GRANTED', epoch, lease, clean and '1' or '0', seq}
