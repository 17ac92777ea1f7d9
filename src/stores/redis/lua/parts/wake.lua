-- Sends a message to the process of a ticket: a hint to ask again, or the lease. If that process makes this very call,
-- the answer carries the message, which is faster. `asking` is the inbox of the calling process, and `own` collects the
-- lines for it. `grant` is empty, or ` <fence> <the server's time>` if the message may be the lease. The message is the
-- lease only if a process listens to the inbox on this server. PUBSUB NUMSUB counts these processes before the message
-- is sent. After a fail-over a process may still listen on a replica, which passes messages on. This server does not
-- count that process, so it must not get a lease. Returns how many processes got the message (or an error, if this user
-- may not publish), and whether the message was the lease.
local asking, own = nil, {}
local function wake(inbox, id, grant)
  if inbox == asking then
    own[#own + 1] = '*' .. id .. grant
    return 1, grant ~= ''
  end
  -- The key of the last fence and the channels of the inboxes have the same prefix.
  local channel = string.sub(KEYS[1], 1, -#'fence' - 1) .. 'inbox:' .. inbox
  local listening = grant ~= '' and redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or 0
  if listening == 0 then grant = '' end
  -- If this user may not publish, a waiter gets no message and asks again at its time.
  local got = redis.pcall('PUBLISH', channel, id .. grant)
  return got, grant ~= '' and type(got) == 'number'
end
