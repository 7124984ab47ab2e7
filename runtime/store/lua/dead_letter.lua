-- dead_letter: moves an entry that can't be applied from an inbox, or from the ingress, to the dead letters beside it. The
-- letter holds the entry's fields with `=` before their names; of one too large to be a command only the beginning, and
-- then `cut`. About the last 10,000 letters of a stream are kept.
--
-- KEYS  1 dead  2 inbox, or the ingress  3 lease (left out for the ingress)  4 cmd hash (left out without an outcome)
-- ARGV  1 lease value ('' for the ingress)  2 entry id  3 kind (a word)  4 reason  5 now (ms)
--       6 outcome ('' = none)  7 channel that hears the outcome  8 consumer group ('' for an inbox)
-- Answers
--       OK                              moved
--       DUP                             there is no such entry: moved or applied before; nothing changed
--       {FENCED, current lease or ''}   the caller does not hold the lease

if ARGV[1] ~= '' then
  local lease = redis.call('GET', KEYS[3])
  if lease ~= ARGV[1] then return {'FENCED', lease or ''} end
end
local found = redis.call('XRANGE', KEYS[2], ARGV[2], ARGV[2])
if #found == 0 then return {ok = 'DUP'} end

local fields = found[1][2]
local size = 0
for place = 1, #fields do size = size + #fields[place] end
local cut = #fields > 2000 or size > 1114112
local letter = {'kind', ARGV[3], 'reason', ARGV[4], 'entry', ARGV[2], 'at', ARGV[5]}
if cut then
  letter[9], letter[10] = 'cut', '1'
end
for place = 1, cut and math.min(#fields, 200) or #fields do
  local text = cut and string.sub(fields[place], 1, 4096) or fields[place]
  letter[#letter + 1] = place % 2 == 1 and '=' .. text or text
end

if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[4], 'outcome', ARGV[6], 'at', ARGV[5])
  redis.call('PEXPIRE', KEYS[4], '3600000')
end
redis.call('XADD', KEYS[1], 'MAXLEN', '~', '10000', '*', unpack(letter))
redis.call('XDEL', KEYS[2], ARGV[2])
if ARGV[8] ~= '' then redis.call('XACK', KEYS[2], ARGV[8], ARGV[2]) end
if ARGV[6] ~= '' then redis.call('PUBLISH', ARGV[7], ARGV[6]) end
return {ok = 'OK'}
