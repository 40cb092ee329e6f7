-- A stand-in: each node in turn, as often as its weight says.
local _M = {}
_M.__index = _M

local function order(nodes)
  local ids, all = {}, {}
  for id in pairs(nodes) do
    ids[#ids + 1] = id
  end
  table.sort(ids)
  for _, id in ipairs(ids) do
    for _ = 1, nodes[id] do
      all[#all + 1] = id
    end
  end
  return all
end

function _M:new(nodes)
  local made = setmetatable({}, self)
  made:reinit(nodes)
  return made
end

function _M:reinit(nodes)
  self.nodes = nodes
  self.order = order(nodes)
  self.at = #self.order > 0 and math.random(#self.order) or 0
end

function _M:find()
  if #self.order == 0 then
    return nil
  end
  self.at = self.at % #self.order + 1
  return self.order[self.at]
end

return _M
