-- The least that a site's hook does: it checks the user and the project.
local projects = {}
for i = 1, 500 do projects["project" .. i] = { group = 1000 + i } end

function slurm_job_submit(job, partitions, uid)
    local project = job.account
    if project and not projects[project] then
        slurm.log_user("project %s is not known", project)
        job.priority = 1
    end
    job.admin_comment = "p=" .. (project or "") .. ";u=" .. tostring(uid)
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
