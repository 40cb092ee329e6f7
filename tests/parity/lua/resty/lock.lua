-- A stand-in: one attempt on a key of a shared dictionary, without waiting.
local _M = {}
_M.__index = _M

function _M:new(dictionary, options)
  local shared = ngx.shared[dictionary]
  if not shared then
    return nil, "dictionary not found"
  end
  return setmetatable({ shared = shared, exptime = options and options.exptime or 30 }, self)
end

function _M:lock(key)
  if self.key then
    return nil, "locked"
  end
  local added, err = self.shared:add(key, true, self.exptime)
  if not added then
    return nil, err == "exists" and "timeout" or err
  end
  self.key = key
  return 0
end

function _M:unlock()
  if not self.key then
    return nil, "unlocked"
  end
  self.shared:delete(self.key)
  self.key = nil
  return 1
end

return _M
