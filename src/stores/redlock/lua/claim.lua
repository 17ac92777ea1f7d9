-- Gives a holder the fence that its process has chosen, if that is above all fences that the other tickets of the room were
-- given, and not too far ahead of the time here.
--
-- A writer or a mutex holds alone. When it was let in, its fence here was above every earlier claim, and no other ticket can have
-- claimed a fence since. So the claimed fence need only be at least that one. Readers share the room, so the fence of a reader
-- has to be above everything that this server ever gave.
--
-- A fence is too far ahead by maxTtl or more. If this server forgets a lower one, its time is above that before its votes count again.
-- If the fence that it gave the ticket itself is as far ahead, its clock was set back, and it accepts such fences.
--
-- KEYS    1 the last fence · 2 the room · 3 the note since when this server remembers everything; see identity.lua
-- ARGV    1 the fence, or `-` for the one that this server gave the ticket · 2 maxTtl: for how long this server must have remembered everything, in ms · 3 minHoldMs · 4 the id
--         5 `c` to claim a fence, or `s` to set the fence that a quorum has accepted already
--         6 the memory that the process has known for maxTtl by its own clock, or nothing
-- Result  a<time in µs>: accepted · b<fence>: the fence has to be above this one · g: the ticket does not hold here
--         f<fence>: too far ahead; this server gave the ticket that one · y: this server may have forgotten another holder
--
-- It decides in this order: whether the ticket holds here (else g), whether the fence is too far ahead (else f), whether it is high
-- enough (else b), whether the server has remembered everything for long enough (else y). The fence is written before the last of
-- these steps.
--@ start
--@ last
local asked, id, propagates = ARGV[1], ARGV[4], ARGV[5] == 's'

local function isTooFar(fence) return fence - usText >= ARGV[2] * 1000 end

-- All fences have 16 digits until the year 2286, so their texts are in the order of their numbers.
local function refusal(fence, limit)
  if asked == fence then return end
  if isTooFar(asked) and not isTooFar(fence) then return 'f' .. fence end
  if propagates then return end
  if limit ~= '1' then
    local last = redis.call('GET', KEYS[1])
    if last and last >= asked then return 'b' .. last end
  end
  if asked < fence then return 'b' .. fence end
end

local function raise()
  local last = takeLast(asked)
  if last and last > tonumber(asked) then redis.call('SET', KEYS[1], string.format('%.0f', last)) end
end

-- The note is read in the same step as the vote: a flush of this server deletes both.
--@ memory
local function remembering()
  return (propagates or remembers(redis.call('GET', KEYS[3]), ARGV[2], ARGV[6])) and 'a' .. usText or 'y'
end

-- Nearly every claim is of a lone holder; room.lua says where its text has the fence.
local content = redis.pcall('GET', KEYS[2])
if not content then return 'g' end
if type(content) == 'string' and ARGV[3] == '0' then
  local prefix = '2 t' .. id .. '\0'
  if string.sub(content, 1, #prefix) ~= prefix then return 'g' end
  local fence = string.sub(content, #prefix + 1, #prefix + 16)
  local refused = refusal(fence, string.match(content, '^%d+ (%d+) ', #prefix + 35))
  if refused then return refused end
  if asked ~= fence then
    redis.call('SET', KEYS[2], prefix .. asked .. string.sub(content, #prefix + 17), 'KEEPTTL')
    raise()
  end
  return remembering()
end
--@ fence
--@ wake
--@ tried
--@ room

local minHold = tonumber(ARGV[3])

local function claim()
  local holder = find(id)
  if not holder or holder.state ~= 'h' or holder.till <= now then return 'g' end
  if asked == '-' then asked = holder.number end
  local refused = refusal(holder.number, tostring(share(holder).limit))
  if refused then return refused end
  if asked ~= holder.number or minHold > 0 then
    erase(holder)
    holder.number = asked
    if minHold > 0 then
      holder.hold = stamp(now + minHold)
      holder.till = math.max(holder.till, now + minHold)
    end
    write(holder)
    raise()
  end
  return remembering()
end

local answer = attempt(KEYS[2], claim)
close()
return answer
