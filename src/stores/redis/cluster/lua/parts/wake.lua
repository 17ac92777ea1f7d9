-- As wake.lua, in a cluster. A process that waits for keys of this slot listens for that on the server that has the slot, and a
-- message then reaches nobody else. Where nobody heard it (it does not listen here yet, the slot is moving, it holds a key that was
-- evicted, or servers older than 7 know no such messages) one is sent to all servers, on one of which every process listens. How
-- many get that one in the whole cluster is not known. So it is never a lease, and the result is 0, as if nobody got it.
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
  -- Without the right to publish, who waits asks instead.
  redis.pcall('PUBLISH', string.match(KEYS[1], '^(.*){[^{}]*}fence$') .. 'inbox:' .. inbox, id)
  return 0, false
end
