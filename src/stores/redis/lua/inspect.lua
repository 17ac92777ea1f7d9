-- What is in rooms, as it is kept. Changes nothing.
--
-- KEYS    the rooms
-- Result  the server's time in ms, then for each room its one text, its list of texts, or nothing
--@ start
--@ tried
local contents = { string.format('%.0f', now) }
for at, key in ipairs(KEYS) do
  local content = tried('GET', key)
  if content == nil then content = tried('ZRANGE', key, 0, -1) end
  contents[at + 1] = content or ''
end
return contents
