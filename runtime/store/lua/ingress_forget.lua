-- ingress_forget: removes a consumer of the ingress that has nothing left to do; what it had taken up would be lost with it.
--
-- KEYS  1 ingress
-- ARGV  1 consumer group  2 consumer
-- Answers
--       1   there is no such consumer any more
--       0   it has entries: somebody must claim them first; nothing changed

if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', '1', ARGV[2]) > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1
