-- Reads rooms as they are stored. Changes nothing.
--
-- KEYS    the rooms
-- Result  a list: the server's time in ms, then for each room `<expiresAt> <text>` of a lone holder, or the list of all its members,
--         which is empty if there is no room, or ? if the key is of another type
--@ start
--@ tried
--@ expiry
local contents = { string.format('%.0f', now) }
for at, key in ipairs(KEYS) do
  local content = tried('GET', key)
  if content == nil then
    content = tried('ZRANGE', key, 0, -1) or '?'
  elseif content then
    content = string.format('%.0f ', expiry(key)) .. content
  end
  contents[at + 1] = content or ''
end
return contents
