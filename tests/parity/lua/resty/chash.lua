-- A stand-in: the node with the highest score for the key, so that a key keeps its node when others come and go. It is
-- another node than the original would choose.
local _M = {}
_M.__index = _M

function _M:new(nodes)
  return setmetatable({ nodes = nodes }, self)
end

function _M:reinit(nodes)
  self.nodes = nodes
end

function _M:find(key)
  local best, highest
  for id in pairs(self.nodes) do
    local score = ngx.crc32_long(tostring(key) .. "\0" .. id)
    if not highest or score > highest or (score == highest and id < best) then
      best, highest = id, score
    end
  end
  return best
end

return _M
