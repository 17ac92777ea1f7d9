-- Sends the message to the process of a ticket: that asking again is worth it, or its lease. If that process makes this very call,
-- the answer carries the message, which is faster: `asking` is the inbox of the calling process, `own` are the lines for it.
-- `grant` is empty, or ` <fence> <the server's time>` if the message may be the lease. It is the lease only if somebody listens to
-- the inbox on this server. PUBSUB NUMSUB counts them first: after a fail-over a process may still listen on a replica, which passes
-- messages on, and PUBLISH does not count that process.
-- Returns how many got the message (or an error, if this user may not publish), and whether the message was the lease.
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
