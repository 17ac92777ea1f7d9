-- Only on redlock: ARGV[6] is `<proposed fence> <maxTtl in ms> <memory, or nothing>`. The servers agree on a fence within their
-- votes if a quorum gives the proposed one. This server gives it in place of its own fence if all of this is true:
-- - It is not below the time here, and above the last fence, which acquire.lua looks at as for any fence.
-- - It is ahead of the time by less than a second, and by less than maxTtl. If this server forgets the fence, its time is above it
--   before its votes count again.
-- - This server has forgotten nothing for maxTtl. The note is read in the same step: a flush deletes it together with the vote.
  if ARGV[6] then
--@ memory
    local proposed, needed, known = string.match(ARGV[6], '^(%d+) (%d+) (.*)$')
    local ahead, written = proposed - usText, redis.call('GET', string.sub(KEYS[1], 1, -#'fence' - 1) .. 'since')
    if ahead >= 0 and ahead < math.min(needed, 1000) * 1000 and remembers(written, needed, known) then fence = proposed end
  end
