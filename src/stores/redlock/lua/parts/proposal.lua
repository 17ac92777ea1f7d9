-- Only on redlock: ARGV[5] is `<proposed fence> <maxTtl in ms> <memory, or nothing>`, or `-`; see unfenced.lua. The servers agree on a fence within their
-- votes if a quorum gives the proposed one. This server gives it in place of its own fence if all of this is true:
-- - It is not below the time here, and above the last fence, which acquire.lua looks at as for any fence.
-- - It is ahead of the time by less than a second, and by less than maxTtl. If this server forgets the fence, its time is above it
--   before its votes count again.
-- - This server has forgotten nothing for maxTtl. The note is read in the same step: a flush deletes it together with the vote.
  if ARGV[5] and ARGV[5] ~= '-' then
--@ memory
    local first = string.find(ARGV[5], ' ', 1, true)
    local second = string.find(ARGV[5], ' ', first + 1, true)
    local proposed, needed, known = string.sub(ARGV[5], 1, first - 1), string.sub(ARGV[5], first + 1, second - 1), string.sub(ARGV[5], second + 1)
    local ahead, written = proposed - usText, redis.call('GET', string.sub(KEYS[1], 1, -#'fence' - 1) .. 'since')
    if ahead >= 0 and ahead < math.min(needed, 1000) * 1000 and remembers(written, needed, known) then fence = proposed end
  end
