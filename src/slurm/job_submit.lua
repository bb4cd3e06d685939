-- job_submit.lua - Slurm's own scheduler counts what --gpuslice asks for: memory in MiB and hundredths of a GPU's time, as the
-- count-only GRES gpuslice_memory and gpuslice_cores of each node. Sites with a job_submit.lua of their own load this one from it:
--
--     local gpuslice = dofile("PREFIX/lib/gpuslice/slurm/job_submit.lua")
--     function slurm_job_submit(job, partitions, uid) return gpuslice.submit(job) end

local gpuslice = {}
local factors = {[""] = 1, B = 1, K = 2^10, M = 2^20, G = 2^30, T = 2^40}

local function mebibytes(text)
    local number, unit = text:match("^(%d+%.?%d*)([KMGTB]?)i?B?$")
    if not number or not factors[unit] then return nil end
    return math.ceil(tonumber(number) * factors[unit] / 2^20)
end

-- What is kept for the session while others want the GPU: the first number.
local function hundredths(text)
    local number = text:match("^(%d+%.?%d*)%%$") or text:match("^(%d+%.?%d*)%%%.%.%d+%.?%d*%%$")
    return number and math.ceil(tonumber(number))
end

-- The option as the job's environment carries it; nil without one.
local function find_option(job)
    local found, count = nil, 0
    for _, entry in pairs(job.spank_job_env or {}) do -- counted from 0
        local value = tostring(entry):match("_SLURM_SPANK_OPTION_gpuslice_gpuslice=(.*)")
        if value then
            found, count = value, count + 1
        end
    end
    return found, count
end

local function refuse(text)
    slurm.log_user("gpuslice: " .. text)
    return slurm.ERROR
end

function gpuslice.submit(job)
    local option, count = find_option(job)
    for _, field in ipairs({"tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "gres"}) do
        if tostring(job[field] or ""):find("gpuslice_") then
            return refuse("--gres=gpuslice_... is not for users; say --gpuslice=memory=SIZE,compute=SHARE")
        end
    end
    if not option then return slurm.SUCCESS end
    if count > 1 then return refuse("--gpuslice is given twice; expected it once") end
    local memory, cores
    for part in option:gmatch("[^,]+") do
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
    if not job.comment or job.comment == "" then job.comment = "gpuslice: " .. option end
    return slurm.SUCCESS
end

-- As a site's whole job_submit.lua.
function slurm_job_submit(job, partitions, uid)
    return gpuslice.submit(job)
end

function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end

return gpuslice
