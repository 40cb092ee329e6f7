-- A stand-in that refuses to work: see docs/parity.md.
return {
  new = function()
    return nil, "resty.http is not there"
  end,
}
