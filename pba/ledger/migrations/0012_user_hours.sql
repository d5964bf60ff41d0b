-- What each user's jobs used, added up per hour, for reports: in slot-milliseconds of the
-- time that cycles saw.

CREATE TABLE user_hour (
    hour    INTEGER NOT NULL,
    pool    INTEGER NOT NULL, -- 0: beyond the pools
    project TEXT NOT NULL,    -- '': of jobs that count under their user alone
    user    TEXT NOT NULL,    -- '': of all users beyond the rows that an hour may have
    step    TEXT NOT NULL,    -- that the jobs name
    used    INTEGER NOT NULL,
    PRIMARY KEY (hour, pool, project, user, step)
) STRICT, WITHOUT ROWID;
