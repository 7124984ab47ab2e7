-- lease_acquire: grants a partition that nobody holds, under a new and higher epoch.
--
-- KEYS  1 lease  2 epoch  3 seq  4 suspects
-- ARGV  1 now (ms)  2 TTL (ms)  3 owner  4 incarnation  5 host information; none of 3-5 holds a '|'
-- Answers
--       {GRANTED, epoch, lease value, left, seq, suspects}
--                              left: how the holder before went: clean (it released), boxed (it died, and its black
--                              box was read) or ''; suspects: fields and values
--       {HELD, lease value}    another one holds it
--
-- The epoch key holds `N`, with `|released` after a release and `|boxed` after a death whose box was read; a grant
-- after these is `N|clean` or `N|known`, so that a repeated request, whose first reply was lost, hears the same.

local lease = redis.call('GET', KEYS[1])
local said = redis.call('GET', KEYS[2])
local seq = redis.call('GET', KEYS[3]) or '0'
local number, mark = string.match(said or '', '^(%d+)|?(%a*)$')

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
  local left = mark == 'clean' and 'clean' or mark == 'known' and 'boxed' or ''
  return {'GRANTED', middle, lease, left, seq, redis.call('HGETALL', KEYS[4])}
end

local epoch = math.max(tonumber(number or '0') + 1, tonumber(ARGV[1]))
epoch = string.format('%.0f', epoch)
local untouched = not said and seq == '0' -- nobody has ever owned it
local left = (mark == 'released' or untouched) and 'clean' or mark == 'boxed' and 'boxed' or ''
local form = left == 'clean' and '|clean' or left == 'boxed' and '|known' or ''
lease = head .. epoch .. tail
redis.call('SET', KEYS[1], lease, 'PX', ARGV[2])
redis.call('SET', KEYS[2], epoch .. form)
return {'GRANTED', epoch, lease, left, seq, redis.call('HGETALL', KEYS[4])}
