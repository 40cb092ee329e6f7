-- Debian's module, which does not know SameSite: it becomes its "extension", the last attribute.
local cookie = require("nginx.cookie")

local _M = { get = cookie.get, get_all = cookie.get_all }

function _M.new()
  local made = cookie:new()
  return setmetatable({ inner = made }, {
    __index = {
      get = function(self, key) return self.inner:get(key) end,
      get_all = function(self) return self.inner:get_all() end,
      set = function(self, data)
        if data.samesite then
          data.extension = "SameSite=" .. data.samesite
        end
        return self.inner:set(data)
      end,
    },
  })
end

return _M
