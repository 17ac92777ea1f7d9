-- Tells the process that a ticket belongs to that asking again is worth it. Where that is the one that asks now, the answer
-- tells it, which is quicker than a message: `asking` is its inbox, and `own` are the tickets to tell it of.
-- `grant` is empty, or ` <fence> <the server's time>` if the message may be a lease. It is one only if a process listens to this
-- inbox on this server. A replica passes on each message, also to a process that still listens there after a fail-over, and
-- PUBLISH does not count that one. So listeners are counted first. The results are how many got the message, or an error if this
-- user may not publish, and whether the message was a lease.
local asking, own = nil, {}
local function wake(inbox, id, grant)
  if inbox == asking then
    own[#own + 1] = '*' .. id .. grant
    return 1, grant ~= ''
  end
  -- The last fence and the inboxes have the same prefix.
  local channel = string.sub(KEYS[1], 1, -#'fence' - 1) .. 'inbox:' .. inbox
  local listening = grant ~= '' and redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or 0
  if listening == 0 then grant = '' end
  -- Without the right to publish, who waits asks instead.
  local got = redis.pcall('PUBLISH', channel, id .. grant)
  return got, grant ~= '' and type(got) == 'number'
end
