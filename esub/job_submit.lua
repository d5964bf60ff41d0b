-- Allotment's submit filter for Slurm: job_submit.lua as slurmctld runs it (Lua 5.1).
--
-- It reads two small files that pba writes, and once the status of its own process; it
-- executes nothing, calls no other process and never waits. Whatever goes wrong, the job
-- goes through as it is, a new one with one line of warning to its user. What it
-- decides is what esub/decide.go decides: one table of cases runs through both.
--
-- Alone, put it beside slurm.conf and set JobSubmitPlugins=lua. A site's own
-- job_submit.lua can call it:
--
--     local allotment = dofile("/etc/slurm/allotment.lua")
--     function slurm_job_submit(job, partitions, uid)
--        local code = allotment.submit(job, partitions, uid)
--        if code ~= slurm.SUCCESS then return code end
--        …
--     end
--     function slurm_job_modify(job, record, partitions, uid)
--        return allotment.modify(job, record, partitions, uid)
--     end
--
-- Slurm gives Lua no way to ask for a file's owner. The directory of these files
-- ensures that only pba can have written them: `pba doctor` checks its owner and mode.
-- Nothing in them is run either way (see read below).

local directory = "/var/lib/allotment" -- pba's state directory

local allotment = {directory = directory, now = os.time}

local MOST_BYTES = 64 * 1024 * 1024 -- of a file; a larger one is not pba's
local MOST_COMMENT = 1024           -- bytes that Slurm takes; more, and it refuses the job
local MOST_TAG = 900
local LICENCE = "allotment_fixed"   -- one for each slot of a job that can't be preempted (R22)
local NOTHING = {}

-- Slurm's numbers for "not said", of 16, 32 and 64 bits.
local function number(value)
   value = tonumber(value)
   if value == nil or value == 65534 or value == 4294967294 or value >= 18446744073709551614 then
      return nil
   end
   return value
end

-- text returns a field's text; a field that was not given reads nil.
local function text(value)
   if type(value) ~= "string" or value == "" then
      return nil
   end
   return value
end

-- Texts of users --------------------------------------------------------------

local function tagged(s)
   return s ~= nil and s:find("^allotment:%d") ~= nil
end

-- Control characters of ASCII, and those that UTF-8 writes in two bytes.
local function has_control(s)
   return s ~= nil and (s:find("[%z\1-\31\127]") ~= nil or s:find("\194[\128-\159]") ~= nil)
end

local quoted = {
   ["\a"] = "\\a", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\v"] = "\\v",
   ['"'] = '\\"', ["\\"] = "\\\\",
}

-- printable shows a name on a terminal: as it is if it is plain, else quoted;
-- never more than a line of it.
local function printable(name)
   if #name > 64 then
      name = name:sub(1, 64) .. "..."
   end
   if name ~= "" and not name:find('[^ -!#-Z%[%]^-~]') then
      return name
   end
   return '"' .. name:gsub('[^ -!#-Z%[%]^-~]', function(c)
      return quoted[c] or string.format("\\x%02x", c:byte())
   end) .. '"'
end

-- escape writes a value into a tag, as backends.Tag does; the colon too, so that no
-- value looks like the engine's record, which follows the tag.
local function escape(value)
   return (value:gsub('[%%:;= \n\r\t"\\|]', function(c) return string.format("%%%02X", c:byte()) end))
end

-- The policy ------------------------------------------------------------------

-- read reads a file of pba's: one constructor of a table of strings and numbers. It is
-- checked before Lua loads it: without its strings not one letter may be left in it but
-- "return". So it can name nothing, call nothing, loop over nothing; and byte code it
-- is not.
local function read(name)
   local path = allotment.directory .. "/" .. name
   local file, why = io.open(path, "rb")
   if not file then
      error(why .. " (pba rebalance writes it)", 0)
   end
   local content = file:read(MOST_BYTES + 1)
   file:close()
   if content == nil or #content > MOST_BYTES or content:sub(1, 7) ~= "return " then
      error(path .. ": damaged: it is no file of pba's", 0)
   end
   local bare = content:sub(8):gsub('"[A-Za-z0-9_ .:\\-]*"', "")
   if bare:find("[^0-9{}%[%]=, \n-]") then
      error(path .. ": damaged: it is cut off, or holds more than data", 0)
   end
   local chunk = loadstring(content, "=" .. name)
   if not chunk then
      error(path .. ": damaged: it is cut off", 0)
   end
   local ok, value = pcall(setfenv(chunk, {}))
   if not ok or type(value) ~= "table" then
      error(path .. ": damaged: it is no table", 0)
   end
   if value.format ~= 1 then
      error(path .. ": it has format " .. printable(tostring(value.format)) .. " and this filter knows 1: install pba and job_submit.lua of one version", 0)
   end
   return value, #content
end

-- leave_mark lets a waiting pba rebalance know that a job comes for which slots are to be
-- there in seconds (R6): the kernel notices that the file was opened. It is pba's, empty
-- and a regular one, so that this never waits.
local function leave_mark()
   local file = io.open(allotment.directory .. "/submitted", "rb")
   if file then
      file:close()
   end
end

local loaded -- the policy that was read last

-- policy returns the policy in force and the pools' standing. The generation file is
-- read at each submission, the policy only when that names another one.
local function policy()
   local standing, p, size
   for _ = 1, 5 do -- they may be read between two renames of pba's
      standing = read("generation.lua")
      if loaded and loaded.identity == standing.policy then
         return loaded, standing
      end
      p, size = read("policy.lua")
      if p.identity ~= p.last then
         error(allotment.directory .. "/policy.lua: damaged: it is cut off", 0)
      end
      if p.identity == standing.policy and size == standing.size then
         loaded = p
         return p, standing
      end
   end
   error("policy.lua and generation.lua in " .. allotment.directory .. " do not belong together", 0)
end

local function stamp(seconds)
   return os.date("!%Y-%m-%dT%H:%M:%SZ", seconds)
end

local function check_age(p, standing)
   if standing.at == 0 then
      error("policy.lua: out of date: pba rebalance has not run yet", 0)
   end
   if math.abs(allotment.now() - standing.at) > p.stale_after then
      error("policy.lua: out of date: pba wrote it last at " .. stamp(standing.at), 0)
   end
end

-- contains reports whether a list of numbers, each between spaces, has one of them.
local function contains(list, id)
   return id ~= nil and list:find(" " .. string.format("%.0f", id) .. " ", 1, true) ~= nil
end

-- The decision ----------------------------------------------------------------

local options = {account = "--account=", wckey = "--wckey=", comment = "--comment="}

-- split_project parts a project's text into project and step.
local function split_project(s)
   local name, step = s:match("^([^:]*):(.*)$")
   if name then
      return name, step
   end
   return s, ""
end

local function has(list, wanted)
   for _, item in ipairs(list) do
      if item == wanted then
         return true
      end
   end
   return false
end

-- managed reports whether one of a job's partitions is managed.
local function managed(p, queue)
   if #p.queues == 0 or queue == "" then
      return true
   end
   for name in queue:gmatch("[^,]+") do
      if name == p.low_queue or has(p.queues, name) then
         return true
      end
   end
   return false
end

local function matches(pool, request)
   local user, uid, step = pool[2], pool[3], pool[4]
   if step ~= "" and step ~= request.step then
      return false
   end
   if user == "" then
      return true
   end
   if uid >= 0 then
      return uid == request.uid
   end
   return user == request.user()
end

-- find_project finds a project. Slurm keeps accounts and wckeys in lower case, so that
-- chipA and chipa are one to the engine, too.
local function find_project(p, name)
   if p.projects[name] or p.project_from == "comment" then
      return p.projects[name]
   end
   if not p.folded then
      p.folded = {}
      for known in pairs(p.projects) do
         local folded = known:lower()
         if not p.folded[folded] or known < p.folded[folded] then -- as the engine does
            p.folded[folded] = known
         end
      end
   end
   return p.projects[p.folded[name:lower()] or name]
end

-- mistakes counts the mistakes that make a of b, as Go's internal/nearest, up to most.
local function mistakes(a, b, most)
   if math.abs(#a - #b) >= most then
      return most
   end
   local before, last
   local current, fewest, earlier = {}, 0, 0
   for j = 0, #b do
      current[j] = j
   end
   for i = 1, #a do
      before, last, current, earlier, fewest = last, current, {[0] = i}, fewest, i
      for j = 1, #b do
         local replaced = last[j - 1]
         if a:byte(i) ~= b:byte(j) then
            replaced = replaced + 1
         end
         current[j] = math.min(replaced, last[j] + 1, current[j - 1] + 1)
         if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
            current[j] = math.min(current[j], before[j - 2] + 1)
         end
         fewest = math.min(fewest, current[j])
      end
      if fewest >= most and earlier + 1 >= most then -- the next rows have no fewer
         return most
      end
   end
   return current[#b]
end

-- nearby names the project that a mistyped name most probably means, as Go's internal/nearest.
-- Of many projects none is searched for: slurmctld does nothing else meanwhile.
local function nearby(p, name)
   local longest, most_projects, projects = 64, 1000, 0
   if #name < 2 or #name > longest then
      return ""
   end
   local word, best, least, begins = name:lower(), nil, math.max(math.floor(#name / 3), 1) + 1, nil
   for known in pairs(p.projects) do
      projects = projects + 1
      if projects > most_projects then
         return ""
      end
      if #known <= longest then
         local n = mistakes(word, known:lower(), least + 1)
         if n < least or n == least and best and known < best then
            best, least = known, n
         end
      end
      if #word > 2 and #known > #word and known:sub(1, #word):lower() == word and (not begins or known < begins) then
         begins = known
      end
   end
   best = best or begins
   return best and " (did you mean " .. printable(best) .. "?)" or ""
end

-- judge runs the tests of R1 in their order: why a job failed, if it did, and
-- what is to become of it; or whether it is next in line, the guarantee of its widest pool,
-- and whether a mark is left.
local function judge(request, p, standing)
   local name, step = request.project, request.step
   local option = options[p.project_from]
   if name == "" then
      if p.on_untagged == "pass" then
         return {}
      end
      return {why = "no project: submit with " .. option .. "PROJECT", answer = p.on_untagged}
   end
   local shown = option .. printable(name)
   local project = find_project(p, name)
   if not project then
      return {why = shown .. ": no project of that name" .. nearby(p, name) .. ": correct it", answer = p.on_failure}
   end
   local group, steps, pools = project[1], project[2], project[3]
   local members = p.groups[group]
   local member = members and contains(members, request.uid)
   if members and contains(p.known, request.uid) and not member then
      return {why = shown .. ": you are not in its group " .. printable(group) .. ": ask to be added", answer = p.on_failure}
   end
   if step ~= "" and #steps > 0 and not has(steps, step) then
      return {why = shown .. ": no step " .. printable(step) .. ": it has " .. printable(table.concat(steps, ", ")), answer = p.on_failure}
   end
   local matched, widest, below, open = false, 0, {}, {}
   for _, pool in ipairs(pools) do
      if matches(pool, request) then
         matched, widest = true, math.max(widest, pool[5])
         -- A user who is not known to be a member passes, but is not next in line.
         if request.slots <= pool[5] and contains(standing.below, pool[1]) then
            table.insert(member and below or open, pool)
         end
      end
   end
   if not matched and p.on_no_pool ~= "pass" then
      return {why = shown .. ": no slots are planned for you there this week: ask its manager", answer = p.on_no_pool}
   end
   return {following = #below > 0, pools = below, open = open, widest = widest, mark = matched and project[4] == 1}
end

-- unpreemptable says of which kind a job is that can't be preempted once it runs, and
-- what its user can do; nil for a job that can (R22).
local function unpreemptable(request, p)
   if request.interactive then
      return "an interactive job", "submit it as a batch job"
   elseif request.exclusive then
      return "an exclusive job", "submit it without --exclusive"
   elseif request.suspend and p.suspend_frees == 0 then
      return "a job with ALLOTMENT_PREEMPT=suspend", "unset it"
   elseif not request.suspend and request.no_requeue then
      return "a job that is not to be requeued", "submit it without --no-requeue"
   end
   return nil
end

-- tasks returns how many tasks an array has, without regard to its limit: its owner may
-- raise that. A job that is no array has one.
local function tasks(indices)
   local sum = 0
   for first, rest in (indices or ""):gsub("%%.*", ""):gmatch("(%d+)([^,]*)") do
      local last, step = rest:match("^%-(%d+):?(%d*)$")
      sum = sum + 1
      if last then
         sum = sum + math.max(0, math.floor((tonumber(last) - tonumber(first)) / math.max(tonumber(step) or 1, 1)))
      end
   end
   return math.max(sum, 1)
end

local spent = {} -- slots that passed without licences since the standing was published, by pool

-- has_room reports whether a job that can't be preempted fits into a pool below its
-- guarantee, beside those that came since the last cycle: an array with all its tasks.
local function has_room(pools, request, standing)
   if spent.at ~= standing.at then
      spent = {at = standing.at}
   end
   for _, pool in ipairs(pools or NOTHING) do
      local sum = (spent[pool[1]] or 0) + request.slots * tasks(request.indices)
      if sum <= pool[5] then
         spent[pool[1]] = sum
         return true
      end
   end
   return false
end

-- licences returns the licences of a job that can't be preempted: one for each slot, and as
-- many of its user's, who shares them with those of the same remainder; nil and the
-- reason: it can't have them. widest is the guarantee of its user's widest pool, 0: there is none.
local function licences(request, p, kind, remedy, widest)
   local wanted = request.slots
   if request.exclusive then
      wanted = math.max(wanted, request.nodes * p.host_slots)
   end
   if wanted > p.fixed then
      if wanted <= widest then
         remedy = remedy .. ", or wait until its pool has room"
      else
         remedy = "or " .. remedy
      end
      return nil, string.format("%s can't be preempted, and such jobs may hold %d slots of the farm: ask for fewer than these %d, %s", kind, p.fixed, wanted, remedy)
   end
   local own = request.licences
   if own and own:find("|", 1, true) then
      return nil, kind .. " needs licences of its own, to which a choice of licences can't be added: " .. remedy
   end
   local all = (own and own .. "," or "") .. LICENCE .. ":" .. wanted
   if p.fixed_users > 0 then
      all = all .. string.format(",%s_%d:%d", LICENCE, request.uid % p.fixed_users, math.min(wanted, p.fixed_user))
   end
   return all
end

-- hold returns the time until which a heavy job is held for its dummy jobs, unless pba
-- releases it before; nil: it is not held.
local function hold(request, p, standing, d)
   if p.observe == 1 or standing.observe == 1 or d.reject or request.delayed or request.exclusive or not p.hold then
      return nil
   end
   local need, queue, project = request.memory, d.partition or request.queue, request.project
   for _, rule in ipairs(p.heavy) do
      local same = rule[1] == project or p.project_from ~= "comment" and rule[1]:lower() == project:lower()
      if (rule[1] == "" or same) and (rule[2] == "" or rule[2] == request.step) and (rule[3] == "" or rule[3] == queue) then
         need = math.max(need, rule[4])
      end
   end
   if need <= p.share * request.slots then
      return nil
   end
   return allotment.now() + p.hold
end

-- write_tag returns the tag of a job, "" if there is nothing to record.
local function write_tag(tag)
   local s = ""
   if tag.suspend then s = s .. "preempt=suspend;" end
   if tag.step ~= "" then s = s .. "step=" .. escape(tag.step) .. ";" end
   if (tag.queue or "") ~= "" then s = s .. "queue=" .. escape(tag.queue) .. ";" end
   if tag.low then s = s .. "low=1;" end
   if tag.held then s = s .. "held=" .. string.format("%.0f", tag.held) .. ";" end
   if tag.checkpoint then s = s .. "checkpoint=" .. escape(tag.checkpoint) .. ";" end
   if tag.minimum then s = s .. "minimum=" .. escape(tag.minimum) .. ";" end
   if tag.deadline then s = s .. "deadline=" .. string.format("%.0f", tag.deadline) .. ";" end
   if s == "" then
      return ""
   end
   return "allotment:1;" .. s
end

-- decide tests a new job for a managed partition. low is the lowest partition, ""
-- if there is none.
local function decide(request, p, standing, low)
   local d = {messages = {}, tag = {suspend = request.suspend, checkpoint = request.checkpoint, minimum = request.minimum, deadline = request.deadline, step = request.step}}
   if p.observe == 1 or standing.observe == 1 or next(p.projects) == nil then
      return d -- nothing is planned yet, or the filter only observes
   end
   local function add(line) table.insert(d.messages, line) end
   for _, line in ipairs(request.warnings) do
      add(line)
   end
   if request.too_long then
      d.reject = true
      return d
   end
   local v = judge(request, p, standing)
   d.mark = v.mark
   local kind, remedy = unpreemptable(request, p)
   if kind and p.fixed then
      if v.answer ~= "reject" and not has_room(v.pools, request, standing) then
         local why
         d.licences, why = licences(request, p, kind, remedy, v.widest or 0)
         -- A member whom the policy does not know yet is not refused: the engine decides.
         if why and not has_room(v.open, request, standing) then
            v = {why = why, answer = "reject"}
         end
      end
   elseif kind and standing.lower_unpreemptable == 1 and not v.following and (not v.why or v.answer == "pass") then
      if v.why then add(v.why) end
      v = {why = kind .. " can't be preempted, and such jobs already hold their share of the farm: " .. remedy, answer = "low"}
   end
   if request.unlisted and v.answer ~= "reject" then
      d.messages = {request.unlisted} -- Slurm refuses the job: nothing else matters
      add = function() end
   end
   if not v.why then
      if v.following and request.queue ~= p.low_queue then
         d.site_factor = p.next_in_line
      end
   elseif v.answer == "reject" then
      d.reject = true
      add(v.why)
   elseif v.answer == "pass" then
      add(v.why)
   else
      d.tag.low = true
      if low == "" then
         add(v.why .. "; it runs last")
      else
         if request.queue ~= low then
            d.partition, d.tag.queue = low, request.queue
         end
         add(v.why .. "; it goes to partition " .. printable(low))
      end
   end
   return d
end

-- Slurm -----------------------------------------------------------------------

-- The user who runs slurmctld: an administrator, as root is.
local slurm_user
do
   local file = io.open("/proc/self/status", "rb")
   local status = file and file:read(4096)
   if file then
      file:close()
   end
   slurm_user = tonumber(status and status:match("\nUid:%s+%d+%s+(%d+)"))
end

local function privileged(uid)
   return uid == 0 or (slurm_user ~= nil and uid == slurm_user)
end

local function show_user(line)
   slurm.log_user("%s", (line:gsub("[%z\1-\31\127]", "?")))
end

local function warn(why)
   show_user("allotment: " .. tostring(why) .. ": the job goes through as it is")
end

local function refuse(line)
   show_user(line)
   return slurm.ESLURM_ACCESS_DENIED
end

-- project_text returns the text of a job that names its project; nil if it is not given.
local function project_text(job, from)
   if from == "wckey" then
      return text(job.wckey)
   elseif from == "comment" then
      local comment = text(job.comment)
      return comment and comment:match("^[^ ]*")
   end
   return text(job.account)
end

-- improper says what in the texts of a job, or of a change, no job may have:
-- other programs read them in a line, and the tag is the filter's. nil: nothing.
local function improper(job)
   for _, field in ipairs({"comment", "name", "account", "wckey"}) do
      if has_control(text(job[field])) then
         return "control characters in the job's " .. field .. ": take them out"
      end
   end
   if tagged(text(job.comment)) then
      return "a comment must not begin with allotment: and a digit: take that out"
   end
   return nil
end

local function default_partition(partitions)
   for name, partition in pairs(partitions or NOTHING) do
      if partition.flag_default == 1 then
         return name
      end
   end
   return nil
end

local function slots(job)
   local wanted = math.max(number(job.min_cpus) or 1, 1)
   local each = number(job.pn_min_cpus)
   if each then
      wanted = math.max(wanted, each * math.max(number(job.min_nodes) or 1, 1))
   end
   return wanted
end

-- memory returns what a job asks for, in bytes; Slurm counts in MiB.
local function memory(job)
   local each = number(job.min_mem_per_cpu)
   if each then
      return each * slots(job) * 1048576
   end
   return (number(job.min_mem_per_node) or 0) * math.max(number(job.min_nodes) or 1, 1) * 1048576
end

-- unlisted says why Slurm will refuse a job's account; nil: it won't, or that is not known.
-- Slurm itself decides: an association that was made since the last cycle is good.
local function unlisted(job, p)
   if not p.accounts then
      return nil
   end
   local account = text(job.account)
   if not account then
      if text(job.default_account) then
         return nil
      end
      return "Slurm's accounting has no account for you: ask an administrator for one"
   end
   local users, shown = p.accounts[account:lower()], options.account .. printable(account)
   if users then
      if contains(users, number(job.user_id)) then
         return nil
      end
      return shown .. ": Slurm's accounting does not list you in that account: name another, or ask an administrator"
   end
   local name, step = split_project(account)
   if step ~= "" and p.accounts[name:lower()] then
      return shown .. ": Slurm's accounting has no account of that name: submit with --account=" .. printable(name) .. ", and ALLOTMENT_STEP=" .. printable(step) .. " in the environment"
   end
   return shown .. ": Slurm's accounting has no account of that name: correct it"
end

local function preempt_mode(word)
   if word == nil or word == "requeue" then
      return false, nil
   elseif word == "suspend" then
      return true, nil
   end
   return false, "ALLOTMENT_PREEMPT=" .. printable(word) .. ": want requeue or suspend; requeue is used"
end

local nanoseconds = {ns = 1, us = 1e3, ["\194\181s"] = 1e3, ["\206\188s"] = 1e3, ms = 1e6, s = 1e9, m = 6e10, h = 3.6e12}

-- seconds returns a time, written as in Go or as a number of seconds, rounded up to whole
-- seconds; nil: it is none.
local function seconds(s)
   if s:find("^%d+$") and tonumber(s) < 2147483648 then
      return tonumber(s)
   end
   s = s:gsub("^%+", "")
   if s == "0" then
      return 0
   end
   local sum = 0
   repeat
      local n, name, rest = s:match("^(%d*%.?%d*)([^%d.]+)(.*)$")
      if not n or not n:find("%d") or not nanoseconds[name] then
         return nil
      end
      sum, s = sum + math.floor(tonumber(n) * nanoseconds[name]), rest
   until s == ""
   return sum < 2 ^ 63 and math.ceil(sum / 1e9) or nil
end

local SIGNALS = {"SIGALRM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGWINCH"}

-- read_part reads one part of ALLOTMENT_CHECKPOINT into c; it returns what is wrong with it.
local function read_part(c, part)
   local key, value = part:match("^([^:]*):(.*)$")
   if not key then
      return "it names no time"
   end
   if key == "every" then
      local every = seconds(value)
      if not every or every < 1 then
         return "every needs a time of 1 s or more"
      elseif c.every then
         return "every stands there twice"
      end
      c.every = every
      return nil
   end
   if c.signal or c.command then
      return "there can be one signal or command"
   end
   if key == "command" then
      value, c.command = value:match("^([^:]*):(/.*)$")
      if not value or #c.command > 255 or c.command:find("[^ -~]") then
         return "the command must be an absolute path of at most 255 characters of printable ASCII"
      end
   else
      c.signal = "SIG" .. key:gsub("^SIG", "")
      if not has(SIGNALS, c.signal) then
         return "the signal must be one of " .. table.concat(SIGNALS, ", ")
      end
   end
   c.wait = seconds(value)
   if not c.wait or c.wait <= 0 or c.wait > 86400 then
      return "it needs a time of more than 0 s"
   end
   return nil
end

-- parse_checkpoint reads how a job saves itself (R33), as backends.ParseCheckpoint does; or
-- it returns nil and what is wrong.
local function parse_checkpoint(s)
   local c, rest = {}, s
   while rest ~= "" do
      local part, after = rest:match("^([^,]*),(.*)$")
      if not part or rest:find("^command:") then
         part, after = rest, ""
      elseif after == "" then
         return nil, "a part is empty"
      end
      rest = after
      local wrong = read_part(c, part)
      if wrong then
         return nil, wrong
      end
   end
   return c, nil
end

-- read_checkpoint returns the checkpoint of a job as it stands in the tag, nil if there is
-- none, and a line for its user; and whether the job is refused.
local function read_checkpoint(s, most)
   if s == nil then
      return nil, nil, false
   end
   local c, wrong = parse_checkpoint(s)
   local variable = "ALLOTMENT_CHECKPOINT=" .. printable(s) .. ": "
   if not c then
      return nil, variable .. wrong .. ": say SIGUSR1:30s, command:30s:/path or every:10m; the job counts as one that does not save itself", false
   end
   if most and c.wait and c.wait > most then
      return nil, variable .. string.format("it asks for %d s to save itself, and %d s are allowed: ask for no more", c.wait, most), true
   end
   local parts = {}
   if c.signal then
      table.insert(parts, string.format("%s:%ds", c.signal, c.wait))
   end
   if c.every then
      table.insert(parts, string.format("every:%.0fs", c.every))
   end
   if c.command then -- last: its path reaches to the end
      table.insert(parts, string.format("command:%ds:%s", c.wait, c.command))
   end
   return table.concat(parts, ","), nil, false
end

local UNITS = {"K", "M", "G", "T"}
local RATE = " needs bytes a second with a unit (K, M, G or T), more than 0 and at most 1024T"

-- amount returns a number of digits, perhaps with a point after the first one; nil: it is none.
local function amount(s)
   return s and s:find("^%d+%.?%d*$") and tonumber(s) or nil
end

-- cores returns a number of cores as it stands in the tag; nil: it is none.
local function cores(s)
   local n = amount(s)
   if not n or n > 100000 then
      return nil
   end
   n = math.floor(n * 1000 + 0.5)
   return n > 0 and (string.format("%.3f", n / 1000):gsub("%.?0+$", "")) or nil
end

-- rate returns bytes a second as they stand in the tag, in the largest unit that divides them;
-- nil: it is none.
local function rate(s)
   local digits, unit = s:upper():match("^([%d.]+)([KMGT])I?B?$")
   local n = amount(digits or s:match("^(%d+)[Bb]$"))
   if not n then
      return nil
   end
   for i, name in ipairs(UNITS) do
      if name == unit then
         n = n * 1024 ^ i
      end
   end
   if n > 2 ^ 50 or n < 1 then
      return nil
   end
   n, unit = math.floor(n), "B"
   for _, name in ipairs(UNITS) do
      if n % 1024 ~= 0 then
         break
      end
      n, unit = n / 1024, name
   end
   return string.format("%.0f", n) .. unit
end

-- parse_minimum reads what a job needs at least (R48), as backends.ParseMinimum does, and returns
-- it as it stands in the tag; or nil and what is wrong.
local function parse_minimum(s)
   local found, say = {}, ": say cpu=2, disk=300M or net=100M"
   for part in (s .. ","):gmatch("([^,]*),") do
      local key, value = part:match("^([^=]*)=?(.*)$")
      if key == "mem" or key == "memory" then
         return nil, "memory has no minimum: a job has the memory that it asks for with -M, on Slurm with --mem"
      elseif key == "" then
         return nil, "a part is empty" .. say
      elseif key ~= "cpu" and key ~= "disk" and key ~= "net" then
         return nil, "a part is not of cpu, disk or net" .. say
      elseif found[key] then
         return nil, key .. " stands there twice" .. say
      elseif key == "cpu" then
         found.cpu = cores(value)
      else
         found[key] = rate(value)
      end
      if not found[key] then
         return nil, key .. (key == "cpu" and " needs a number of cores, more than 0 and at most 100000" or RATE) .. say
      end
   end
   local parts = {}
   for _, key in ipairs({"cpu", "disk", "net"}) do
      if found[key] then
         table.insert(parts, key .. "=" .. found[key])
      end
   end
   return table.concat(parts, ","), nil
end

-- read_minimum returns the minimum of a job as it stands in the tag, nil if there is none, and a
-- line for its user.
local function read_minimum(s)
   if s == nil then
      return nil, nil
   end
   local minimum, wrong = parse_minimum(s)
   if not minimum then
      return nil, "ALLOTMENT_MIN=" .. printable(s) .. ": " .. wrong .. "; the job has no minimum"
   end
   return minimum, nil
end

local DEADLINE = ": say 07:00, 2026-12-01T07:00, 2026-12-01T07:00:00Z or +3h"
local MINUTES = {m = 1, h = 60, d = 1440}

-- utc returns the UNIX seconds of a date's begin in UTC; nil: there is no such date.
local function utc(year, month, day)
   local leap = year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0)
   local lengths = {31, leap and 29 or 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}
   if not lengths[month] or day < 1 or day > lengths[month] then
      return nil
   end
   local before = year - 1
   local days = before * 365 + math.floor(before / 4) - math.floor(before / 100) + math.floor(before / 400)
   for i = 1, month - 1 do
      days = days + lengths[i]
   end
   return (days + day - 1 - 719162) * 86400 -- 719162 days before 1970
end

-- parse_deadline reads by when a job should have ended (R48), as backends.ParseDeadline does, in UNIX
-- seconds; nil: it is no time. Times without an offset are in slurmctld's zone.
local function parse_deadline(s, now)
   local n, unit = s:match("^%+(%d+)([mhd])$")
   if n then
      return #n <= 5 and now + tonumber(n) * MINUTES[unit] * 60 or nil
   end
   local clock, past = s:match("^(%d%d?):(%d%d)$")
   if clock then
      local hour, minute, today = tonumber(clock), tonumber(past), os.date("*t", now)
      if hour > 23 or minute > 59 then
         return nil
      end
      for day = today.day, today.day + 1 do
         local at = os.time({year = today.year, month = today.month, day = day, hour = hour, min = minute, sec = 0})
         if at and at > now then
            return at
         end
      end
      return nil
   end
   local date, rest = s:match("^(%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d)(.*)$")
   if not date then
      return nil
   end
   local year, month, day, hour, minute = date:match("(%d+)-(%d+)-(%d+)T(%d+):(%d+)")
   year, month, day, hour, minute = tonumber(year), tonumber(month), tonumber(day), tonumber(hour), tonumber(minute)
   local second, zone = rest:match("^:(%d%d)(.*)$")
   second, zone = tonumber(second or 0), zone or rest
   local begins = utc(year, month, day)
   if not begins or hour > 23 or minute > 59 or second > 59 then
      return nil
   end
   local at = begins + hour * 3600 + minute * 60 + second
   if zone == "" then
      if math.abs(at - now) > 400 * 86400 then -- too far by any zone; C's time may not reach there
         return at
      end
      return os.time({year = year, month = month, day = day, hour = hour, min = minute, sec = second})
   elseif zone == "Z" then
      return at
   end
   local sign, hours, minutes = zone:match("^([+-])(%d%d):(%d%d)$")
   if not sign or tonumber(hours) > 23 or tonumber(minutes) > 59 then
      return nil
   end
   return at - tonumber(sign .. "1") * (hours * 3600 + minutes * 60)
end

-- read_deadline returns the deadline of a job, in UNIX seconds, nil if there is none, and a line for its
-- user.
local function read_deadline(s)
   if s == nil then
      return nil, nil
   end
   local now = allotment.now()
   local at, wrong = parse_deadline(s, now), nil
   if not at then
      wrong = "it is no time"
   elseif at <= now then
      wrong = "it is in the past"
   elseif at - now > 366 * 86400 then
      wrong = "it is more than a year ahead"
   else
      return at, nil
   end
   return nil, "ALLOTMENT_DEADLINE=" .. printable(s) .. ": " .. wrong .. DEADLINE .. "; the job has no deadline"
end

local function request_of(job, partitions, p)
   local environment = job.environment or NOTHING
   local name, step = split_project(project_text(job, p.project_from) or "")
   if p.project_from == "account" and name == "" then
      name = text(job.default_account) or ""
   end
   if step == "" then
      step = text(environment.ALLOTMENT_STEP) or ""
   end
   local suspend, warning = preempt_mode(text(environment.ALLOTMENT_PREEMPT))
   local checkpoint, wrong, too_long = read_checkpoint(text(environment.ALLOTMENT_CHECKPOINT), p.checkpoint_max)
   local minimum, unread = read_minimum(text(environment.ALLOTMENT_MIN))
   local deadline, late = read_deadline(text(environment.ALLOTMENT_DEADLINE))
   local warnings = {}
   for _, line in ipairs({warning or false, wrong or false, unread or false, late or false}) do
      if line then
         table.insert(warnings, line)
      end
   end
   return {
      uid = number(job.user_id), user = function() return job.user_name end,
      project = name, step = step,
      queue = text(job.partition) or default_partition(partitions) or p.default_queue,
      slots = slots(job), memory = memory(job), nodes = math.max(number(job.min_nodes) or 1, 1),
      indices = text(job.array_inx), licences = text(job.licenses),
      delayed = (number(job.begin_time) or 0) ~= 0,
      suspend = suspend, checkpoint = checkpoint, too_long = too_long, minimum = minimum, deadline = deadline,
      warnings = warnings, unlisted = unlisted(job, p),
      interactive = text(job.script) == nil,
      exclusive = number(job.shared) == 0,
      no_requeue = number(job.requeue) == 0,
   }
end

-- cut shortens a text to some bytes, between two characters of UTF-8.
local function cut(s, most)
   if #s <= most then
      return s
   end
   while most > 0 and s:byte(most + 1) >= 128 and s:byte(most + 1) < 192 do
      most = most - 1
   end
   return s:sub(1, most)
end

local function mark(job, tag)
   if #tag > MOST_TAG then
      error("the step is too long to be recorded", 0)
   end
   local comment = text(job.comment)
   if comment then
      job.comment = cut(tag .. " " .. comment, MOST_COMMENT)
   else
      job.comment = tag
   end
   local admin = text(job.admin_comment)
   if admin then
      tag = tag .. " " .. admin
   end
   job.admin_comment = tag
end

-- ours reports whether a job's licences have Allotment's among them.
local function ours(list)
   return list ~= nil and list:find(LICENCE, 1, true) ~= nil
end

local function submit(job, partitions, uid)
   if privileged(uid) and tagged(text(job.comment)) then
      return slurm.SUCCESS -- the engine's own
   end
   local wrong = improper(job)
   if wrong then
      return refuse(wrong)
   end
   if not privileged(uid) and number(job.site_factor) then
      job.site_factor = 0
   end
   local p, standing = policy()
   check_age(p, standing)
   local request = request_of(job, partitions, p)
   if has_control(request.step) then
      return refuse("control characters in ALLOTMENT_STEP: take them out")
   end
   if p.fixed and not privileged(uid) and ours(request.licences) then
      return refuse("licences " .. LICENCE .. " are Allotment's: take them out")
   end
   if not managed(p, request.queue) then
      return slurm.SUCCESS
   end
   local low = p.low_queue
   if partitions and next(partitions) ~= nil and not partitions[low] then
      low = "" -- to send a job to a partition that is not there would lose it
   end
   local d = decide(request, p, standing, low)
   d.tag.held = hold(request, p, standing, d)
   local tag = write_tag(d.tag)
   if not d.reject and tag ~= "" then
      mark(job, tag)
   end
   for _, line in ipairs(d.messages) do
      show_user(line)
   end
   if d.reject then
      return slurm.ESLURM_ACCESS_DENIED
   end
   if d.mark then
      leave_mark()
   end
   if d.partition then
      job.partition = d.partition
   end
   if d.tag.held then
      job.begin_time = d.tag.held
   end
   if d.licences then
      job.licenses = d.licences
   end
   if d.site_factor and d.site_factor > 0 then
      job.site_factor = d.site_factor
   end
   return slurm.SUCCESS
end

-- forbidden says why an owner may not make a change of a job; nil: the owner may. It
-- holds without a policy, too.
local function forbidden(job, record)
   local admin, comment = text(record.admin_comment), text(record.comment)
   if job.admin_comment ~= nil and (tagged(admin) or tagged(job.admin_comment)) then
      return "the admin comment is Allotment's"
   end
   if job.comment ~= nil and job.comment ~= comment and tagged(comment) then
      return "the comment begins with what Allotment recorded: leave it"
   end
   local wrong = improper(job)
   if wrong then
      return wrong
   end
   local priority = number(job.priority)
   if priority and priority > 0 and priority ~= slurm.INFINITE then
      return "an explicit priority would stay for ever: use scontrol hold, or Nice"
   end
   if not admin then
      return nil
   end
   local held = tagged(admin) and tonumber(admin:match("^[^ ]*;held=(%d+);"))
   if held and held > allotment.now() and (number(job.begin_time) or 0) ~= 0 then
      return "the job waits for memory: pba sets its begin time"
   end
   if (" " .. admin):find("[ ;]engine:1;") then
      if (number(job.begin_time) or 0) ~= 0 then
         return "pba holds the job for a while: it sets its begin time"
      end
      if job.req_nodes ~= nil or job.exc_nodes ~= nil then
         return "pba has pinned the job: it sets its nodes"
      end
   end
   local partition = text(job.partition)
   if partition and partition ~= record.partition and tagged(admin) and admin:find(";low=1;", 1, true) then
      local from = admin:match(";queue=([^; ]*);")
      if not from or escape(record.partition or "") ~= from then
         return "the job was sent to the lowest partition: pba moves it back once it is entitled"
      end
   end
   return nil
end

-- evades says why an owner may not make a change by which a job that can't be preempted
-- would have no licence for each slot; nil: the owner may. Slurm does not show here
-- whether a job may be requeued.
local function evades(job, record, p)
   local held, partition = ours(text(record.licenses)), text(job.partition)
   if ours(text(job.licenses)) or held and job.licenses ~= nil then
      return "licences " .. LICENCE .. " are Allotment's"
   end
   if not managed(p, partition or record.partition or "") then
      return nil
   end
   local exclusive = number(job.shared) == 0
   if held and (exclusive or (number(job.min_cpus) or 0) > slots(record) or number(job.pn_min_cpus)) then
      return "the job has a licence for each slot: submit another for more slots"
   elseif not held and (exclusive or number(job.requeue) == 0) then
      return "the job could not be preempted then: submit another that is so from the start"
   elseif not held and partition and not managed(p, record.partition or "") then
      return "the job was submitted to a partition that is not managed: submit another"
   end
   return nil
end

local function modify(job, record, uid)
   if privileged(uid) then
      return slurm.SUCCESS
   end
   local why = forbidden(job, record)
   if why then
      return refuse(why)
   end
   local p, standing = policy()
   check_age(p, standing)
   if p.fixed and p.observe ~= 1 and standing.observe ~= 1 and next(p.projects) ~= nil then
      why = evades(job, record, p)
      if why then
         return refuse(why)
      end
   end
   local given = {account = job.account, wckey = job.wckey, comment = job.comment}
   if given[p.project_from] == nil or p.observe == 1 or standing.observe == 1 or next(p.projects) == nil then
      return slurm.SUCCESS
   end
   local name, step = split_project(project_text(job, p.project_from) or "")
   local request = {
      uid = number(record.user_id), user = function() return record.user_name end,
      project = name, step = step, slots = slots(record),
   }
   local v = judge(request, p, {below = ""})
   if not v.why then
      return slurm.SUCCESS
   end
   show_user(v.why)
   if v.answer == "reject" then
      return slurm.ESLURM_ACCESS_DENIED
   end
   return slurm.SUCCESS
end

-- submit is slurm_job_submit: slurm.SUCCESS, or the error by which Slurm refuses the
-- job; its user has been shown the reason then.
function allotment.submit(job, partitions, uid)
   local ok, answer = pcall(submit, job, partitions, uid)
   if ok then
      return answer
   end
   pcall(warn, answer)
   return slurm.SUCCESS
end

-- modify is slurm_job_modify. Slurm shows a refused user no message.
function allotment.modify(job, record, _, uid)
   local ok, answer = pcall(modify, job, record, uid)
   if ok then
      return answer
   end
   return slurm.SUCCESS
end

-- Alone, it is the hook itself.
if rawget(_G, "slurm_job_submit") == nil and rawget(_G, "slurm_job_modify") == nil then
   slurm_job_submit = allotment.submit
   slurm_job_modify = allotment.modify
end

return allotment
