-- Gives a holder the fence that its process chose, where no other ticket of the room was given as much before.
--
-- Who holds alone was granted the room under a fence above all that were claimed here before, and nobody else can have claimed
-- one since: at least its own is enough. Readers share the room, so they have to be above everything that was ever given here.
--
-- KEYS    1 the last fence · 2 the room · 3 since when this server remembers everything; see identity.lua
-- ARGV    1 the fence · 2 how long this server must have kept its memory, in ms · 3 minHoldMs · 4 the id
--         5 `c` to claim, or `s` to write down what a quorum has accepted already
--         6 the memory that the process has known for as long by its own clock, or nothing
-- Result  a<time in µs>: accepted · b<fence>: it has to be above this · g: it does not hold here · y: this server may have forgotten others
--@ start
--@ last
local asked, id, settles = ARGV[1], ARGV[4], ARGV[5] == 's'

-- All fences have 16 digits until the year 2286, so their texts are in the order of their numbers.
local function refusal(fence, limit)
  if settles or asked == fence then return end
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

-- Looked at in the same step as the vote: whoever flushes this server takes both.
--@ memory
local function remembering()
  return (settles or remembers(redis.call('GET', KEYS[3]), ARGV[2], ARGV[6])) and 'a' .. usText or 'y'
end

-- A lone holder is nearly every claim; see room.lua for what is where in its entry.
local content = redis.pcall('GET', KEYS[2])
if not content then return 'g' end
if type(content) == 'string' and ARGV[3] == '0' then
  local lone = '1 t' .. id .. '\0h '
  if string.sub(content, 1, #lone) ~= lone then return 'g' end
  if tonumber(string.sub(content, #lone + 35, #lone + 47)) <= now then return 'g' end
  local fence = string.sub(content, #lone + 1, #lone + 16)
  local refused = refusal(fence, string.match(content, '^%d+ %d+ (%d+) ', #lone + 49))
  if refused then return refused end
  if asked ~= fence then
    redis.call('SET', KEYS[2], lone .. asked .. string.sub(content, #lone + 17), 'KEEPTTL')
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
