-- A stand-in that refuses to work: see docs/parity.md.
return {
  new = function()
    return nil, "resty.global_throttle is not there"
  end,
}
