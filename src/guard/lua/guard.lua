-- Refuses a stale fence. Otherwise remembers the fence and runs the script that follows, in one atomic step.
-- KEYS: the key of the fence, then the keys of the script that follows.
-- ARGV: the fence in decimal, then the arguments of the script that follows.
-- Result: what the script that follows returns. If a later fence was seen: an error that begins with STALEFENCE.
do
  local fence_key, claimed = table.remove(KEYS, 1), table.remove(ARGV, 1)
  local seen = redis.call('GET', fence_key)
  -- Compares texts, because a number of Lua is exact up to 2^53 only. The longer text is the larger number.
  if seen and (#claimed < #seen or (#claimed == #seen and claimed < seen)) then
    return redis.error_reply('STALEFENCE fence ' .. claimed .. ' is stale: ' .. fence_key .. ' has seen ' .. seen)
  end
  if seen ~= claimed then redis.call('SET', fence_key, claimed) end
end
