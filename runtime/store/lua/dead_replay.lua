-- dead_replay: puts the entry of a dead letter back into the stream that it came from, at its end; needs no lease.
--
-- KEYS  1 dead  2 inbox, or the ingress
-- ARGV  1 id of the letter
-- Answers
--       {REPLAYED, entry id}   the entry waits to be read again, under a new id; the letter is gone
--       GONE                   there is no such letter: replayed or dropped before; nothing changed
--       CUT                    the letter does not hold the whole entry; nothing changed

local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
if #found == 0 then return {ok = 'GONE'} end
local letter = found[1][2]
local entry = {}
for place = 1, #letter, 2 do
  if letter[place] == 'cut' then return {ok = 'CUT'} end
  if string.sub(letter[place], 1, 1) == '=' then
    entry[#entry + 1] = string.sub(letter[place], 2)
    entry[#entry + 1] = letter[place + 1]
  end
end
if #entry == 0 or #entry > 4000 then return {ok = 'CUT'} end

local added = redis.call('XADD', KEYS[2], '*', unpack(entry))
redis.call('XDEL', KEYS[1], ARGV[1])
return {'REPLAYED', added}
