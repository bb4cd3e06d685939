-- job_submit.lua - has Slurm's own scheduler count what --gpuslice asks for: memory in MiB and hundredths of a GPU's time, as
-- the count-only GRES gpuslice_memory and gpuslice_cores of each node. A site with a job_submit.lua of its own loads this one:
--
--     local gpuslice = dofile("PREFIX/lib/gpuslice/slurm/job_submit.lua")
--     gpuslice.default = "memory=2GiB" -- as after default= in plugstack.conf, so that such jobs are counted too
--     function slurm_job_submit(job, partitions, uid) return gpuslice.submit(job) end
--     function slurm_job_modify(job, record, partitions, uid) return gpuslice.modify(job, record) end
--
-- Slurm accepts a job if this script raises an error, so input is checked before it is used in a computation.

local gpuslice = {}
local factors = {[""] = 1, K = 2^10, M = 2^20, G = 2^30, T = 2^40, P = 2^50}
local fields = {"tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "gres"}

-- Sizes and shares have the form of gpuslice run's: a small number without a unit is refused.
local function mebibytes(text)
    local number, unit = text:upper():match("^(%d+%.?%d*)([KMGTP]?)I?B?$")
    local is_bare = text:match("^%d+$") and tonumber(number) < 2^20
    return number and not is_bare and math.ceil(tonumber(number) * factors[unit] / 2^20)
end

-- The share that the session keeps while others want the GPU, rounded up: the first number.
local function hundredths(text)
    local number = text:match("^(%d+%.?%d*)%%?$") or text:match("^(%d+%.?%d*)%%?%.%.%d+%.?%d*%%?$")
    return number and math.ceil(tonumber(number))
end

-- The option's value in the job's environment, nil without one; and how often it is there.
local function find_option(job)
    local found, count = nil, 0
    for _, entry in pairs(job.spank_job_env or {}) do -- indices start at 0
        local value = tostring(entry):match("_SLURM_SPANK_OPTION_gpuslice_gpuslice=(.*)")
        if value then
            found, count = value, count + 1
        end
    end
    return found, count
end

local function refuse(text)
    slurm.log_user("%s", "gpuslice: " .. text) -- the first argument is a format
    return slurm.ERROR
end

local function names_ours(job)
    for _, field in ipairs(fields) do
        if tostring(job[field] or ""):lower():find("gpuslice_", 1, true) then return true end
    end
    return false
end

function gpuslice.submit(job)
    local option, count = find_option(job)
    local wish = option or gpuslice.default
    if names_ours(job) then
        return refuse("--gres=gpuslice_... is not for users; say --gpuslice=memory=SIZE,compute=SHARE")
    end
    if not wish then return slurm.SUCCESS end
    if count > 1 then return refuse("--gpuslice is given twice; expected it once") end
    local memory, cores
    for part in wish:gmatch("[^,]+") do
        local key, value = part:match("^(%w+)=(.+)$")
        if key == "memory" then
            memory = mebibytes(value)
        elseif key == "compute" then
            cores = hundredths(value)
            if not cores then return refuse("compute=" .. value .. " is no share; expected one like 25% or 20%..60%") end
        end
    end
    if not memory or memory < 1 then return refuse("expected memory=SIZE, like memory=4GiB") end
    local wanted = "gres:gpuslice_memory:" .. memory
    if cores and cores > 0 then wanted = wanted .. ",gres:gpuslice_cores:" .. cores end
    local before = job.tres_per_node
    job.tres_per_node = (before and before ~= "") and before .. "," .. wanted or wanted
    if not job.comment or job.comment == "" then job.comment = "gpuslice: " .. wish end
    return slurm.SUCCESS
end

-- The session gets what was asked for at submission, so what the job is counted with must not change later.
function gpuslice.modify(job, record)
    local changes = false
    for _, field in ipairs(fields) do
        changes = changes or job[field] ~= nil
    end
    if names_ours(job) or (changes and names_ours(record)) then
        return refuse("what a job has by --gpuslice cannot be changed; cancel the job and submit it again")
    end
    return slurm.SUCCESS
end

-- For sites on which this file is the whole job_submit.lua.
function slurm_job_submit(job, partitions, uid)
    return gpuslice.submit(job)
end

function slurm_job_modify(job, record, partitions, uid)
    return gpuslice.modify(job, record)
end

return gpuslice
