-- One of several servers, of which most may agree on a fence in the vote itself: the one that the ticket's process proposes. It
-- stands for the server's own where it is not below the time here, nor ahead of it by as much as the memory has to be old, so
-- that the time is beyond it before the vote of a server that has forgotten it counts again; and, as below, only if it is
-- above the last one. The memory is looked at in the same step: whoever flushes the server takes the vote, too. See identity.lua.
  if ARGV[6] then
--@ memory
    local proposed, needed, known = string.match(ARGV[6], '^(%d+) (%d+) (.*)$')
    local ahead, written = proposed - usText, redis.call('GET', string.sub(KEYS[1], 1, -#'fence' - 1) .. 'since')
    if ahead >= 0 and ahead < math.min(needed, 1000) * 1000 and remembers(written, needed, known) then fence = proposed end
  end
