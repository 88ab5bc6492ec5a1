-- What a Redis store does with a batch of slots, in one atomic pass. Every key is a slot of its own.
--
-- KEYS[i] is the slot of the i-th operation. ARGV[1] is the channel on which waiters in other
-- processes listen, ARGV[2] the milliseconds that an expired record is kept beyond its end; behind
-- them come the arguments of each operation, the first of which says what to do:
--
--   '1'..'4' expected next since till body   swap in a record of that kind ('2' and '3' with the
--                                            time in ARGV[2] on top of `till`)
--   'r'      expected lease                  renew the lease of a claim
--   'g'                                      read
--   'w'                                      mark a claim as waited for
--   'x'                                      remove what has expired
--
-- The reply is the time in milliseconds, then for each operation 1 (written, marked or removed),
-- 0 (nothing there, or nothing done), a value (what is there instead), {value} (it is there and
-- counts as won), {0, error}, or -1 (nothing was done, ask again: the reply is large enough). No
-- command may raise an error: the operations before it in the batch are done, and their callers must
-- hear so.
--
-- A value is the layout (1 byte), the version (16 bytes of write, 4 of renewal), the kind, whether
-- somebody waits, the times `since` and `till` (8 bytes each), and the encoded record.

local call, pack = redis.pcall, struct.pack
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local channel, grace = ARGV[1], ARGV[2]

-- Missing: ''. What is no value of ours is never touched.
local function head_of(key)
  local head = call('GETRANGE', key, '0', '38')
  if type(head) == 'table' then return nil, head.err end
  if head ~= '' and (#head < 39 or head:byte(1) ~= 1) then return nil, 'LAYOUT' end
  return head
end

local function whole(key)
  local value = call('GET', key)
  if type(value) == 'table' then return {0, value.err} end
  return value or 0
end

-- Records can be large, and a reply is held in memory as a whole, here and there.
local replied, replied_max = 0, 4194304

local function shown(key)
  if replied > replied_max then return -1 end
  local value = whole(key)
  if type(value) == 'string' then replied = replied + #value end
  return value
end

-- Writes to `key`, which is there; answers what was refused, if it was. A full server refuses a write
-- that may need room, unless the script has written before. It may refuse a new key, but never what
-- becomes of one that it holds: so a write that changes nothing goes before. The new keys of a batch
-- come first, so that none of them slips in behind it.
local function write(key, ...)
  local wrote = call(...)
  local err = type(wrote) == 'table' and wrote.err
  if err and err:find('OOM', 1, true) then
    call('PERSIST', key)
    wrote = call(...)
    err = type(wrote) == 'table' and wrote.err
  end
  return err
end

local function swap(key, kind, expected, next, since, till, body)
  -- A claim and an unknown never expire. Without it a write also ends an earlier expiry. What does
  -- expire comes with the whole time that it is kept for, which is handed on as it came: making
  -- words of numbers is dear here.
  local expires = kind == '2' or kind == '3'
  local times = pack('>I8I8', now + since, expires and now + till - grace or now + till)
  local value, refused = '\1' .. next .. kind .. '0' .. times .. body
  if expected == '' then
    -- Nearly always there is nothing, and one command finds that out and writes.
    local wrote
    if expires then
      wrote = call('SET', key, value, 'NX', 'PX', till)
    else
      wrote = call('SET', key, value, 'NX')
    end
    if wrote and not wrote.err then return 1 end
    -- A copy of this write may have been here before, on a server that let it in.
    refused = wrote and wrote.err
  end
  local head, err = head_of(key)
  if err then return {0, err} end
  local there = head:sub(2, 21)
  if there ~= expected then
    local found = shown(key)
    -- It was not the first time: this very write changed what is there.
    local is_ours = there ~= '' and there:sub(1, 16) == next:sub(1, 16)
    return is_ours and type(found) == 'string' and {found} or found
  end
  if refused then return {0, refused} end
  if expires then
    err = write(key, 'SET', key, value, 'PX', till)
  else
    err = write(key, 'SET', key, value)
  end
  if err then return {0, err} end
  local was, awaited = head:byte(22, 23)
  if was == 49 and awaited == 49 then call('PUBLISH', channel, key) end
  return 1
end

local function renew(key, expected, lease)
  local head, err = head_of(key)
  if err then return {0, err} end
  if head:sub(2, 21) ~= expected or head:sub(22, 22) ~= '1' then return shown(key) end
  local renewal = (struct.unpack('>I4', head, 18) + 1) % 4294967296
  -- In one write, so that no failure leaves half a renewal.
  local middle = pack('>I4', renewal) .. head:sub(22, 31) .. pack('>I8', now + lease)
  err = write(key, 'SETRANGE', key, 17, middle)
  if err then return {0, err} end
  -- A claim has no outcome, so it is small.
  return {whole(key)}
end

local function mark(key)
  local head, err = head_of(key)
  if err then return {0, err} end
  if head:sub(22, 22) ~= '1' then return 0 end
  if head:sub(23, 23) == '1' then return 1 end
  err = write(key, 'SETRANGE', key, 22, '1')
  if err then return {0, err} end
  return 1
end

local function remove(key)
  local head, err = head_of(key)
  if err then return {0, err} end
  local kind = head:sub(22, 22)
  if kind ~= '2' and kind ~= '3' then return 0 end
  if struct.unpack('>I8', head, 32) > now then return 0 end
  local gone = call('UNLINK', key)
  if type(gone) == 'table' then return {0, gone.err} end
  return gone
end

local replies, at = {now}, 3
for i = 1, #KEYS do
  local key, what = KEYS[i], ARGV[at]
  if what == 'g' then
    replies[i + 1], at = shown(key), at + 1
  elseif what == 'r' then
    replies[i + 1], at = renew(key, ARGV[at + 1], ARGV[at + 2]), at + 3
  elseif what == 'w' then
    replies[i + 1], at = mark(key), at + 1
  elseif what == 'x' then
    replies[i + 1], at = remove(key), at + 1
  else
    local expected, next, since, till = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
    replies[i + 1], at = swap(key, what, expected, next, since, till, ARGV[at + 5]), at + 6
  end
end
return replies
