-- As wake.lua, on a cluster. A process that waits for keys of a slot subscribes to a channel of that slot, on the
-- server of the slot. If no process is subscribed there, the message goes to all servers instead: every process listens
-- on one of them. No process is subscribed if the subscription is not made yet, the slot moves, the ticket is an
-- evicted holder, or the server is older than 7. No server knows how many processes get such a message, so the message
-- is never a lease, and the result is 0.
local asking, own = nil, {}
local function wake(inbox, id, grant)
  if inbox == asking then
    own[#own + 1] = '*' .. id .. grant
    return 1, grant ~= ''
  end
  local channel = string.sub(KEYS[1], 1, -#'fence' - 1) .. 'inbox:' .. inbox
  local listening = grant ~= '' and redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)[2] or 0
  if listening == 0 then grant = '' end
  local heard = redis.pcall('SPUBLISH', channel, id .. grant)
  if type(heard) == 'number' and heard > 0 then return heard, grant ~= '' end
  -- If this user may not publish, a waiter gets no message and asks again at its time.
  redis.pcall('PUBLISH', string.match(KEYS[1], '^(.*){[^{}]*}fence$') .. 'inbox:' .. inbox, id)
  return 0, false
end
