-- A slurmctld for job_submit.lua: what it offers to a script, and nothing else.
-- arg: the script, the file with the request. Prints "key value" lines, each byte
-- of a value as two digits.
local messages = {}
slurm = {
   SUCCESS = 0, ERROR = -1, ESLURM_ACCESS_DENIED = 2002, INFINITE = 4294967295, NO_VAL = 4294967294,
   log_user = function(...) table.insert(messages, string.format(...)) end,
}
for _, forbidden in ipairs({"execute", "remove", "rename", "exit", "getenv", "setlocale", "tmpname"}) do
   os[forbidden] = function() error("os." .. forbidden .. " was called") end
end
io.popen = function() error("io.popen was called") end
local open = io.open
io.open = function(name, mode)
   assert(mode == "rb", "a file is opened to be written")
   return open(name, mode)
end

local ask = dofile(arg[2]) -- {directory, now, uid, job, record or nil, partitions}
local allotment = dofile(arg[1])
if ask.directory then allotment.directory = ask.directory end
allotment.now = function() return ask.now end
if ask.before then ask.before(allotment, ask) end

local function show(key, value)
   if value == nil then return end
   io.write(key, " ", (tostring(value):gsub(".", function(c) return string.format("%02x", c:byte()) end)), "\n")
end
local code
if ask.record then
   code = slurm_job_modify(ask.job, ask.record, ask.partitions, ask.uid)
else
   code = slurm_job_submit(ask.job, ask.partitions, ask.uid)
end
show("code", code)
for _, line in ipairs(messages) do show("message", line) end
for key, value in pairs(ask.job) do
   if type(value) ~= "table" then show("job." .. key, value) end
end
