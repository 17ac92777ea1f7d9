-- Tells the process that a ticket belongs to that asking again is worth it. Where that is the one that asks now, the answer
-- tells it, which is quicker than a message: `asking` is its inbox, and `own` are the tickets to tell it of.
-- `grant` is empty, or ` <fence> <the server's time>` if the message is a lease. The result is how many got it, and an error if
-- this user may not publish.
local asking, own = nil, {}
local function wake(inbox, id, grant)
  local message = id .. grant
  if inbox == asking then
    own[#own + 1] = '*' .. message
    return 1
  end
  -- The last fence and the inboxes have the same prefix. Without the right to publish, who waits asks instead.
  return redis.pcall('PUBLISH', string.sub(KEYS[1], 1, -#'fence' - 1) .. 'inbox:' .. inbox, message)
end
