-- Tells the process that a ticket belongs to that asking again is worth it. Where that is the one that asks now, the answer
-- tells it, which is quicker than a message: `asking` is its inbox, and `own` are the tickets to tell it of.
-- The result is 0 if nobody got the message.
local asking, own = nil, {}
local function wake(inbox, id)
  if inbox == asking then
    own[#own + 1] = '*' .. id
  else
    -- The last fence and the inboxes have the same prefix. Without the right to publish, who waits asks instead.
    return redis.pcall('PUBLISH', string.sub(KEYS[1], 1, -#'fence' - 1) .. 'inbox:' .. inbox, id)
  end
end
