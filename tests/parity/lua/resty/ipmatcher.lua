-- A stand-in that refuses to work: see docs/parity.md.
return {
  new = function()
    return nil, "resty.ipmatcher is not there"
  end,
}
